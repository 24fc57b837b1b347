"""Template collapse: does the reasoning depend on the prompt, or would it do for any? (RAGEN-2)

    ell[i, j] = log-prob of reasoning i under prompt j --> mutual information, entropies, retrieval

Two axes: within-input diversity H(Z|X), and input dependence I(X; Z). Entropy alone cannot see a policy whose answers
vary and say nothing of the question.

Legend: N prompts with a reasoning each; row i a reasoning, column j a prompt.
"""

from collections.abc import Sequence
from math import comb, log
from typing import Literal

import numpy as np

RETRIEVED = (1, 2, 4, 8)
"""Ranks k at which retrieval is measured."""
_LEAST_STD = 1e-3
_TIE = 1e-9

Regime = Literal["diverse", "template", "specialised", "collapsed"]


def template_metrics(scores_NN: np.ndarray, prompts: Sequence[object]) -> dict[str, float]:
    """Numbers of one cross-scored matrix.

    With matched_i = ell[i, i] and marginal_i = logsumexp_j ell[i, j] - log N, all in the unit of ell (nats a token for
    means over a reasoning's tokens, nats a sequence for sums):

    `mutual_information`: mean of matched - marginal; from 0, where reasoning says nothing of its prompt, to at most
    log N (`mutual_information_bound`). `conditional_entropy`: H(Z|X), - mean of matched. `marginal_entropy`: H(Z),
    - mean of marginal. `mutual_information_z`: mean of (matched - marginal) / (std of marginal + 0.001), ddof 0.

    `retrieval_at_K`, `retrieval_at_K_above_chance`: is the reasoning's own prompt, or one equal to it, among the K
    under which it is likeliest? Ties are drawn by lot, and the number is the expectation; so a matrix that says nothing
    is at chance exactly. Chance is that of K prompts drawn without replacement: K / N where all prompts differ.

    Args:
        scores_NN: ell, float64 [N, N].
        prompts: Of each column, whatever is equal for equal prompts; row i belongs to prompt i. [N]

    Returns:
        Names and values; nothing for fewer than two different prompts, among which nothing can be told.
    """
    number = len(prompts)
    if len(set(prompts)) < 2:
        return {}
    matched_N = scores_NN.diagonal()
    marginal_N = np.logaddexp.reduce(scores_NN, axis=1) - log(number)
    gain_N = matched_N - marginal_N
    values = {
        "mutual_information": gain_N.mean(),
        "mutual_information_bound": log(number),
        "mutual_information_z": (gain_N / (marginal_N.std() + _LEAST_STD)).mean(),
        "conditional_entropy": -matched_N.mean(),
        "marginal_entropy": -marginal_N.mean(),
    }
    is_same_NN = np.array([[one == other for other in prompts] for one in prompts])
    for k in (k for k in RETRIEVED if k < number):
        found = np.mean([_hit(row, same, k) for row, same in zip(scores_NN, is_same_NN, strict=True)])
        chance = np.mean([_drawn(number, int(count), k) for count in is_same_NN.sum(axis=1)])
        values |= {f"retrieval_at_{k}": found, f"retrieval_at_{k}_above_chance": found - chance}
    return {name: float(value) for name, value in values.items()}


def _hit(scores_N: np.ndarray, is_same_N: np.ndarray, k: int) -> float:
    """Probability that one of the same prompts is among the best k, equal scores in any order."""
    best = scores_N[is_same_N].max()
    is_better = scores_N > best + _TIE
    is_tied = ~is_better & (scores_N > best - _TIE)
    left = k - int(is_better.sum())
    return _drawn(int(is_tied.sum()), int((is_tied & is_same_N).sum()), left) if left > 0 else 0.0


def _drawn(number: int, wanted: int, draws: int) -> float:
    """Probability that draws without replacement bring at least one of the wanted."""
    return 1.0 - comb(number - wanted, min(draws, number)) / comb(number, min(draws, number))


def regime(diversity: float, dependence: float) -> Regime:
    """Which of the four regimes of RAGEN-2's plane; both are shares of what they were at first, high from a half on.

    Args:
        diversity: H(Z|X) over the run's first.
        dependence: I(X; Z) over the run's first.

    Returns:
        'diverse': varied reasoning that fits its prompt. 'template': varied, and the same for every prompt.
        'specialised': one reasoning for each prompt. 'collapsed': one for all.
    """
    if dependence >= 0.5:
        return "diverse" if diversity >= 0.5 else "specialised"
    return "template" if diversity >= 0.5 else "collapsed"
