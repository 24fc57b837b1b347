"""On-policy distillation: a teacher scores the tokens that the policy sampled (docs/distillation.md).

hints       what the teacher's prompts say and the policy's do not
contexts    the teacher's contexts: the policy's tokens, with hints between them
scoring     log-probs of the responses under a teacher that is loaded here: start here
served      the same of one on a server
vocabulary  whether a teacher reads the policy's tokens

`tasks.teacher` is the stage, `learners.companions.teacher` its column in an update, `objectives.distillation` the
formula.
"""
