"""Methods with machinery of their own, a folder each: code, settings, and a name in `registrations.toml`.

They are plugged in by the names of the registry, as a user's own code is (docs/extend.md): nothing below imports them.

search            rollouts whose responses are the best of several (TSR)
judge             reward by a language model's verdict on the turn (VAGEN)
checklist         reward by its verdicts on several questions (CM2)
segments          advantages within and between the subgoals that the reasoning names (HiPER)
implicit_rewards  turns rewarded by a second policy, trained to prefer the better trajectories of a group (iStar)
curricula         how often each level of the environment is played, by the success so far
programs          episodes played by a program of the user's own, through an endpoint that records it
sequential_turns  a step per turn, the last turn first (SeeUPO)
"""
