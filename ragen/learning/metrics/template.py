"""Template collapse: whether the reasoning depends on the prompt or is the same for any (RAGEN-2).

    ell[i, j] = log-prob of reasoning i under prompt j --> mutual information, entropies, retrieval

Two axes: within-input diversity H(Z|X), and input dependence I(X; Z). Entropy alone cannot detect a policy whose
answers vary but do not depend on the prompt.

Legend: N prompts with a reasoning each; row i is a reasoning, column j a prompt.
"""

from collections.abc import Sequence
from math import comb, log
from typing import Literal

import numpy as np

RETRIEVED = (1, 2, 4, 8)
"""Values of k at which retrieval is measured."""
_LEAST_STD = 1e-3
_TIE = 1e-9

Regime = Literal["diverse", "template", "specialised", "collapsed"]


def template_metrics(scores_NN: np.ndarray, prompts: Sequence[object]) -> dict[str, float]:
    """Compute the metrics of one cross-scored matrix.

    With matched_i = ell[i, i] and marginal_i = logsumexp_j ell[i, j] - log N, all in the unit of ell (nats per token
    for means over a reasoning's tokens, nats per sequence for sums):

    `mutual_information`: mean of matched - marginal; from 0, if the reasoning is independent of its prompt, to at most
    log N (`mutual_information_bound`). `conditional_entropy`: H(Z|X), - mean of matched. `marginal_entropy`: H(Z),
    - mean of marginal. `mutual_information_z`: mean of (matched - marginal) / (std of marginal + 0.001), ddof 0.

    `retrieval_at_K`, `retrieval_at_K_above_chance`: share of reasonings whose own prompt, or one equal to it, is among
    the K prompts under which they are likeliest. Ties are broken at random, and the value is the expectation, so an
    uninformative matrix is exactly at chance. Chance is that of K prompts drawn without replacement: K / N if all
    prompts differ.

    Args:
        scores_NN: ell, float64 [N, N].
        prompts: Identity of the prompt of each column, equal for equal prompts; row i belongs to prompt i. [N]

    Returns:
        Names and values; empty for fewer than two different prompts, which cannot be told apart.
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
        rate = np.mean([_hit(row, same, k) for row, same in zip(scores_NN, is_same_NN, strict=True)])
        chance = np.mean([_drawn(number, int(count), k) for count in is_same_NN.sum(axis=1)])
        values |= {f"retrieval_at_{k}": rate, f"retrieval_at_{k}_above_chance": rate - chance}
    return {name: float(value) for name, value in values.items()}


def _hit(scores_N: np.ndarray, is_same_N: np.ndarray, k: int) -> float:
    """Probability that one of the equal prompts is among the best k, with ties in random order."""
    best = scores_N[is_same_N].max()
    is_better = scores_N > best + _TIE
    is_tied = ~is_better & (scores_N > best - _TIE)
    left = k - int(is_better.sum())
    return _drawn(int(is_tied.sum()), int((is_tied & is_same_N).sum()), left) if left > 0 else 0.0


def _drawn(number: int, wanted: int, draws: int) -> float:
    """Probability that draws without replacement include at least one of the wanted."""
    return 1.0 - comb(number - wanted, min(draws, number)) / comb(number, min(draws, number))


def regime(diversity: float, dependence: float) -> Regime:
    """Classify a probe into one of the four regimes of RAGEN-2's plane; a share of at least a half counts as high.

    Args:
        diversity: H(Z|X) divided by that of the run's first probe.
        dependence: I(X; Z) divided by that of the run's first probe.

    Returns:
        'diverse': varied reasoning that fits its prompt. 'template': varied, but the same for every prompt.
        'specialised': one reasoning per prompt. 'collapsed': one reasoning for all prompts.
    """
    if dependence >= 0.5:
        return "diverse" if diversity >= 0.5 else "specialised"
    return "template" if diversity >= 0.5 else "collapsed"
