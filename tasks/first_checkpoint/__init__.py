"""The first checkpoint of a run, the stage `warm_start`, one kind of policy a file (`tasks.warm_start` chooses).

embedded         built here, and trained on demonstrations
pretrained       taken as it is
fine_tuned       a pretrained one, trained on demonstrations or on stored episodes
demonstrations   what demonstrations depend on: settings, and code that these name
stored_episodes  the stored episodes that fine-tuning imitates
stages           name and version of the stage; settings that every kind has
"""
