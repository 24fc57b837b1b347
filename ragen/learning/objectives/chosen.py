"""Importance weights of responses that search chose: how much less often the policy alone would sample them.

Search samples M responses in one context and takes one of the best. Its tokens were sampled from the policy, but the
response as a whole was not: good responses are chosen more often than the policy samples them.
"""

import numpy as np


def selection_weight(num_as_good: np.ndarray, num_candidates: np.ndarray) -> np.ndarray:
    """Importance weight of a response that was chosen as the best of M.

    Let p be the policy's probability mass of all responses that score at least as well as the chosen one. The best of M
    independent samples is one of these with probability `1 - (1 - p)^M`, and among them it is distributed as under the
    policy. If no response scores better than the chosen one, the policy samples it less often than search takes it by
    the factor

        w = p / (1 - (1 - p)^M),    p estimated by t / M

    where t of the M candidates score at least as well. If all tie, p = 1 and w = 1: search had no effect. For 1 of 4,
    w = 0.25 / (1 - 0.75^4) = 0.3657. The weight corrects for responses that are chosen too often, but not for those
    that are chosen too rarely, of which the candidates hold no information. p is estimated from the same candidates
    that were chosen among, so w, which approaches 1 / M as p approaches 0, stays above that. Trajectory search rollouts
    (arXiv 2602.11767) keep the best of M; the weight is this project's own.

    Args:
        num_as_good: t, from 1 to M. [rows]
        num_candidates: M; 1 if nothing was chosen, which gives a weight of 1. [rows]

    Returns:
        float64 [rows], in (1 / M, 1].
    """
    share = np.asarray(num_as_good, dtype=np.float64) / num_candidates
    return share / (1.0 - (1.0 - share) ** num_candidates)
