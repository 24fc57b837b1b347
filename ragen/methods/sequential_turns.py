"""Sequential updates of turns (SeeUPO, arXiv 2602.06554): `update.turn_order = 'reverse'`.

Legend: N response tokens of the update, B trajectories.
"""

import torch

from starpo.ragen.learning.learners.turn_orders import MiniBatch, Steps


def last_turn_first(minibatch: MiniBatch) -> Steps:
    """One step per turn, the last turn first (Alg. 1).

    Advantages of a turn are multiplied by the ratios, new to old, of the later turns, which are already updated: the
    geometric mean over each turn's tokens with a loss, clipped as in the surrogate. The gradient of a turn thus
    accounts for the updated policy of the later turns.
    """
    tokens, config = minibatch.tokens, minibatch.config
    has_loss_N = tokens.mask(config.loss_on)
    factor_B = torch.ones(len(tokens.lengths_B))
    for turn in range(int(tokens.turn_N[minibatch.is_in_N].max()), -1, -1):
        is_now_N = minibatch.is_in_N & (tokens.turn_N == turn)
        yield is_now_N, minibatch.advantages_N * factor_B[tokens.trajectory_N].to(minibatch.advantages_N)
        if turn and is_now_N.any():
            is_meant_N = is_now_N & has_loss_N
            moved_N = minibatch.logprobs() - minibatch.old_logprobs_N
            count_B = tokens.sums(is_meant_N).clamp(min=1)
            ratio_B = (tokens.sums(moved_N * is_meant_N) / count_B).exp()
            factor_B = factor_B * ratio_B.clamp(1 - config.clip_low, 1 + config.clip_high).float()
