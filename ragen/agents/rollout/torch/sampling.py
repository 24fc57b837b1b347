"""Drawing tokens by inverse transform sampling, so that given numbers in [0, 1) determine the tokens.

A shared random number generator would make a token depend on its place in the batch; with a number of its own, it
depends only on its trajectory and turn.

    logits_AV, uniforms_B -> tokens_B, logprobs_B

Tensor suffixes: A distributions, B draws, V vocabulary.
"""

import torch
from torch import Tensor


def draw_tokens(
    logits_AV: Tensor, uniforms_B: Tensor, temperature: float, top_p: float, rows_B: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Draw one token for each number.

    The token is the first, in ascending id, whose cumulative probability exceeds `uniform * total`; the cumulative sum
    is in float64, and a token of probability 0 is never drawn.

    Args:
        logits_AV: Of any floating dtype; arithmetic is in float32, sums in float64.
        uniforms_B: Numbers in [0, 1), float64; ignored at temperature 0.
        temperature: Divides the logits. 0 selects the most probable token, the one with the smallest id if tied.
        top_p: Draw from the smallest set of most probable tokens whose probabilities add up to at least this; among
            equally probable tokens at the boundary, smaller ids are included first.
        rows_B: Row of the logits that each token is drawn from. None: row b for draw b.

    Returns:
        Tokens, int64 [B], and log-probabilities, float32 [B], in nats, under the distribution drawn from (temperature
        and top_p included); at temperature 0 under the unscaled one. Non-finite logits give a non-finite
        log-probability.
    """
    logits_AV = logits_AV.float()
    if temperature == 0.0:
        tokens_A = logits_AV.argmax(-1)
        logprobs_A = logits_AV.log_softmax(-1).gather(-1, tokens_A[:, None])[:, 0]
        return _of_draws(tokens_A, rows_B), _of_draws(logprobs_A, rows_B)
    probs_AV = torch.softmax(logits_AV if temperature == 1.0 else logits_AV / temperature, -1)
    if top_p < 1.0:
        probs_AV = _nucleus(probs_AV, top_p)
    cumulative_BV = _of_draws(cumulative(probs_AV), rows_B)
    total_B1 = cumulative_BV[:, -1:].contiguous()
    # A number just below 1 may round to the total itself, which no cumulative sum exceeds.
    below_total_B1 = torch.nextafter(total_B1, torch.zeros_like(total_B1))
    targets_B1 = torch.minimum(uniforms_B[:, None] * total_B1, below_total_B1)
    tokens_B1 = torch.searchsorted(cumulative_BV, targets_B1, right=True)
    tokens_B1.clamp_(max=probs_AV.shape[-1] - 1)  # only has an effect for non-finite logits
    tokens_B = tokens_B1[:, 0]
    probs_B = probs_AV.gather(-1, tokens_B1)[:, 0] if rows_B is None else probs_AV[rows_B, tokens_B]
    return tokens_B, (probs_B / total_B1[:, 0]).log().float()


def _of_draws(values_A: Tensor, rows_B: Tensor | None) -> Tensor:
    return values_A if rows_B is None else values_A.index_select(0, rows_B)


def cumulative(probs_AV: Tensor) -> Tensor:
    """Sum the probabilities up to each token in float64, in the same order every time.

    A GPU scans a single row in parts, whose sums meet in any order, but several rows one by one.
    """
    if probs_AV.is_cuda and len(probs_AV) == 1:
        return probs_AV.expand(2, -1).cumsum(-1, dtype=torch.float64)[:1]
    return probs_AV.cumsum(-1, dtype=torch.float64)


def _nucleus(probs_BV: Tensor, top_p: float) -> Tensor:
    """Zero all probabilities outside the smallest set of probability >= top_p, without renormalising the rest."""
    descending_BV, ids_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    before_BV = cumulative(descending_BV) - descending_BV
    kept_BV = torch.where(before_BV < top_p, descending_BV, 0.0)
    return torch.zeros_like(probs_BV).scatter_(-1, ids_BV, kept_BV)
