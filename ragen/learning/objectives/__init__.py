"""Objectives: pure torch functions that follow the papers' formulas. No models, no tables, no settings.

    rewards -> estimator -> scale, shaping -> advantages;   log-probs -> ratio -> surrogate -> weights -> loss

masks          means, deviations and whitening over the tokens of a mask; first and last tokens of turns
estimates      inputs and outputs of estimators; the standard deviation that advantages are divided by
columns        inputs of estimators with the numbers of all companion models
advantages     estimators that compare trajectories: group, batch, leave-one-out, greedy, by length, raw
decoupled      the estimator that normalises each component of the reward
likelihood     the estimator that maximises the likelihood of success
gae            estimators with a critic: over tokens, turns, both
monte_carlo    the estimator that is a measurement: the true advantages of turns
anchor_states  estimators that compare turns in the same state
shaping        final transformations of the advantages
distillation   a teacher's advantages beside those of the reward
ratios         probability ratios of a token, a turn, a sequence
surrogates     clipped and otherwise bounded losses of a token
trust_regions  losses without tokens whose probability has moved too far
losses         value loss, entropy, truncated importance, and the weight of a token in a batch's loss
importance     importance weights of tokens by their sequence, truncated or masked
off_policy     terms for tokens that another policy sampled
entropy_target coefficient of an entropy bonus that keeps a target
uncertain      the tokens at which a policy is most uncertain
chosen         importance weight of a response that search chose
kl             per-token estimators of the divergence from a reference policy
"""
