"""A trial before a run: some episodes are played and trained on, to tell what the run will be like and take.

trial   episodes -> shares, rewards, advice
speed   what a run repeats, timed as wide and as concurrent as there
pace    seconds of a run, from these times or from those of a finished run
"""
