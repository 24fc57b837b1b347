"""How much less often the policy draws a response than search, which chose it, does.

Search samples M responses in one context and takes one of the best. Its tokens were drawn from the policy, but the
response as a whole was not: good ones are taken more often than they are drawn.
"""

import numpy as np


def selection_weight(num_as_good: np.ndarray, num_candidates: np.ndarray) -> np.ndarray:
    """Importance weight of a response that was chosen as the best of M.

    Let p be the policy's mass of all responses that score at least as well as the chosen one. The best of M independent
    draws is one of them with probability `1 - (1 - p)^M`, and among them it is distributed as the policy is. Where
    nothing scores better than the chosen one, the policy draws it less often than search takes it by the factor

        w = p / (1 - (1 - p)^M),    p estimated by t / M

    with t of the M candidates scoring at least as well. All tie: p = 1 and w = 1, for search chose nothing. 1 of 4:
    0.25 / (1 - 0.75^4) = 0.3657. It corrects for responses that are taken too often and not for those that are taken
    too seldom, which no candidate tells of; and p is estimated from the draws that were chosen among, so w, which falls
    to 1 / M as p does, is held above that. Trajectory search rollouts (arXiv 2602.11767) keep the best of M; the weight
    is this project's own.

    Args:
        num_as_good: t, from 1 to M. [rows]
        num_candidates: M; 1 where nothing was chosen, which gives 1. [rows]

    Returns:
        float64 [rows], in (1 / M, 1].
    """
    share = np.asarray(num_as_good, dtype=np.float64) / num_candidates
    return share / (1.0 - (1.0 - share) ** num_candidates)
