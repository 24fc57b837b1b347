"""Template collapse by hand: two prompts, informative and uninformative matrices, ties and equal prompts."""

import numpy as np
import pytest

from starpo.ragen.learning.metrics.template import template_metrics

TWO = np.array([[-1.0, -3.0], [-3.0, -1.0]])


def test_two_distinguished_prompts_by_hand() -> None:
    metrics = template_metrics(TWO, ["a", "b"])
    assert metrics["mutual_information"] == pytest.approx(0.56622, abs=1e-5)
    assert metrics["mutual_information_bound"] == pytest.approx(0.69315, abs=1e-5)
    assert metrics["conditional_entropy"] == 1.0
    assert metrics["marginal_entropy"] == pytest.approx(1.56622, abs=1e-5)
    assert (metrics["retrieval_at_1"], metrics["retrieval_at_1_above_chance"]) == (1.0, 0.5)
    assert metrics["mutual_information_z"] == pytest.approx(566.22, abs=0.01)  # both marginals are equal: std 0 + 0.001
    assert "retrieval_at_2" not in metrics  # two of two prompts always include the right one


def test_equal_prompt_counts_as_own() -> None:
    scores = np.array([[-3.0, -1.0, -2.0], [-3.0, -1.0, -2.0], [-3.0, -1.0, -2.0]])
    metrics = template_metrics(scores, ["a", "a", "b"])
    assert metrics["retrieval_at_1"] == pytest.approx(2 / 3)
    assert metrics["retrieval_at_1_above_chance"] == pytest.approx(2 / 3 - (2 / 3 + 2 / 3 + 1 / 3) / 3)


def test_uninformative_matrix_reaches_chance() -> None:
    metrics = template_metrics(np.zeros((6, 6)), "aaabbc")
    for k in (1, 2, 4):
        assert metrics[f"retrieval_at_{k}_above_chance"] == pytest.approx(0.0)


@pytest.mark.parametrize("prompts", [[], ["a"], ["a", "a"]])
def test_equal_prompts_are_indistinguishable(prompts: list[str]) -> None:
    assert template_metrics(np.zeros((len(prompts), len(prompts))), prompts) == {}


def test_a_naive_loop_gives_the_same() -> None:
    random = np.random.default_rng(0)
    scores = random.normal(size=(7, 7)) * 3 - 5
    metrics = template_metrics(scores, range(7))
    marginal = [np.log(sum(np.exp(scores[i, j]) for j in range(7)) / 7) for i in range(7)]
    assert metrics["mutual_information"] == pytest.approx(np.mean([scores[i, i] - marginal[i] for i in range(7)]))
    for k in (1, 2, 4):
        hits = [sum(scores[i, j] > scores[i, i] for j in range(7)) < k for i in range(7)]
        assert metrics[f"retrieval_at_{k}"] == pytest.approx(np.mean(hits))
