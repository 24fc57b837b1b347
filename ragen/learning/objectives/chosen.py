"""How much less often the policy draws a response than search, which chose it, does.

Search samples M responses in one context and takes one of the best. Its tokens were drawn from the policy, but the
response as a whole was not: good ones are taken more often than they are drawn.
"""

import numpy as np


def selection_weight(num_as_good: np.ndarray, num_candidates: np.ndarray) -> np.ndarray:
    """Importance weight of a response that was chosen as the best of M.

    Of all responses that score at least as well as the chosen one let the policy draw p. The best of M independent
    draws is one of them with probability `1 - (1 - p)^M`, and within them it is distributed as the policy is, so

        w = p / (1 - (1 - p)^M),    p estimated by t / M

    with t of the M candidates scoring at least as well (trajectory search rollouts, arXiv 2602.11767, keep the best and
    do not weigh it). All tie: p = 1 and w = 1, for search chose nothing. 1 of 4: 0.25 / (1 - 0.75^4) = 0.3657. The
    estimate of p from the same draws is biased upward where p is small, and with it w, never below 1 / M: a weight that
    has little variance instead.

    Args:
        num_as_good: t, from 1 to M. [rows]
        num_candidates: M; 1 where nothing was chosen, which gives 1. [rows]

    Returns:
        float64 [rows], in (1 / M, 1].
    """
    share = np.asarray(num_as_good, dtype=np.float64) / num_candidates
    return share / (1.0 - (1.0 - share) ** num_candidates)
