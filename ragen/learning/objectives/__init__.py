"""What is maximised: pure torch functions that read like the papers. No models, no tables, no settings.

masks       means, deviations and whitening over the tokens of a mask; where turns end
advantages  estimators (GAE, bi-level GAE, group- and batch-relative, leave-one-out, raw return) and their scale
losses      clipped surrogate, value loss, entropy, and the weight of a token in a batch's loss
chosen      weight of a response that search chose
kl          per-token estimators of the divergence from a reference policy
"""
