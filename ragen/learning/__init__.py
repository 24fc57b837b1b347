"""Learning: stored turns -> checkpoint. Start reading at `objectives`, then `learners.update`.

reward      components of a turn's reward
filter      which groups are trained on, by their uncertainty
objectives  the formulas of the papers in one place: advantages, losses, KL
levels      levels of a curriculum: their success, their shares, the groups that these give
learners    optimiser steps in one process, on a GPU or over ranks; checkpoints
distillation what a teacher says of the tokens that the policy sampled
metrics     what a run measures while it trains
control     what the metrics so far mean for the rest of a run: verdict, standstill, reuse of a rollout
true_credit values before and after turns, by continuations that are played
imitation   supervised learning on demonstrations or stored episodes, by the learner's means: warm start, fine-tuning
stored_episodes episodes to imitate, chosen by their outcome
conversations   conversations of others as examples, by the policy's chat template
"""
