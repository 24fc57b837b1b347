"""Estimates of values and advantages beside exact ones: a Markov chain and a slippery lake, played at random."""

from collections.abc import Callable

import numpy as np
import pytest

from starpo.ragen.agents.evaluation.clusters import student_quantile
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.learning.true_credit.values import advantage_se, mean_with_se
from tests.ragen.learning.true_credit import chain
from tests.ragen.learning.true_credit.chain import LAKE, Chain, ChainSettings, Played, play_at_random

NUM_CONTINUATIONS = 16
_AT_ONCE = 512


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("tokenizer"))
    make_tokenizer().save_pretrained(place)
    return place


@pytest.fixture
def played(folder: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Played:
    monkeypatch.setitem(ENVIRONMENTS, "chain", f"{Chain.__module__}:Chain")
    return play_at_random(ChainSettings() if request.param == "chain" else LAKE, folder, num_groups=1)


def coverage(played: Played, exact: np.ndarray, num_repetitions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares of repetitions whose 95% intervals of values [S], and of advantages without the reward [T],
    contain the exact number."""
    number, states = num_repetitions * NUM_CONTINUATIONS, played.states
    parts = [played.returns(first, min(first + _AT_ONCE, number)) for first in range(0, number, _AT_ONCE)]
    quantile = student_quantile(0.975, NUM_CONTINUATIONS - 1)
    values, advantages = np.zeros(len(exact)), np.zeros(len(states.turns))
    for returns in np.split(np.concatenate(parts, axis=1), num_repetitions, axis=1):
        of_states = [mean_with_se([of_state]) for of_state in returns]
        values += [abs(v - e) <= quantile * se for (v, se), e in zip(of_states, exact, strict=True)]
        for turn, (b, a) in enumerate(zip(states.before, states.after, strict=True)):
            error = (of_states[a][0] - exact[a] if a >= 0 else 0.0) - (of_states[b][0] - exact[b])
            advantages[turn] += abs(error) <= quantile * advantage_se(returns, b, a)
    return values / num_repetitions, advantages / num_repetitions


CASES = [pytest.param("chain", chain.chain_value, id="chain"), pytest.param("lake", chain.lake_value, id="lake")]


@pytest.mark.parametrize(("played", "value"), CASES, indirect=["played"])
def test_means_approach_exact_values(played: Played, value: Callable[..., float]) -> None:
    exact = played.exact(value)
    returns = played.returns(0, 150)
    errors = [(mean_with_se([of_state]), e) for of_state, e in zip(returns, exact, strict=True)]
    assert len(exact) >= 6
    assert np.ptp(exact) > 0.2
    assert all(abs(mean - e) <= 4 * se for (mean, se), e in errors)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("played", "value"), CASES, indirect=["played"])
def test_intervals_cover_at_stated_rate(played: Played, value: Callable[..., float]) -> None:
    exact = played.exact(value)
    values, advantages = coverage(played, exact, 2_000)
    print(np.c_[exact, values].round(3), advantages.round(3))
    # 95% within four standard errors of a share of 2,000; the normal interval of a share is too narrow near 0 and 1
    is_regular = (
        (exact > 0.3) & (exact < 0.7) if played.job.environment.type == "frozen_lake" else np.ones(len(exact), bool)
    )
    assert is_regular.any()
    assert np.abs(values[is_regular] - 0.95).max() < 4 * (0.95 * 0.05 / 2_000) ** 0.5
