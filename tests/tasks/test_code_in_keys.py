"""Code that settings name belongs to the key: what was edited or added is executed, not served from what is stored."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ragen.config.environment import EnvironmentConfig
from ragen.config.evaluation import EvaluationConfig
from ragen.config.filter import FilterConfig
from ragen.config.load import apply_overrides
from ragen.config.reward import RewardConfig
from ragen.config.rollout import RolloutConfig
from ragen.config.starpo import StarPOConfig
from ragen.envs.sokoban import SokobanSettings
from ragen.identity import code_identity
from ragen.registry import ADVANTAGES, AGENT, DEMONSTRATORS, ENVIRONMENTS, FILTERS, REWARDS
from ragen.store import Store
from schemas.examples import example
from schemas.manifest import Stage
from tasks.evaluate import evaluate
from tasks.reward import reward
from tasks.rollout import rollout
from tasks.stage import planning
from tasks.update import update
from tasks.variance_filter import variance_filter
from tasks.warm_start import warm_start

CONFIG = StarPOConfig(environment=SokobanSettings(observation="compact"), evaluation=EvaluationConfig(num_prompts=4))
TURNS, OTHER = "a" * 32, "b" * 32

BONUS = "import numpy as np\n\ndef bonus(turns, config):\n    return np.full(turns.num_rows, 1.0)\n"


def keys(store: Store) -> dict[str, str]:
    """The key of every stage, planned."""
    url, update_inputs = store.url, dict.fromkeys(("checkpoint", "reference", "turns", "rewards", "selection"), OTHER)
    calls: dict[str, Callable[[], dict[str, str]]] = {
        "warm_start": lambda: warm_start.fn(url, CONFIG),
        "rollout": lambda: rollout.fn(url, 0, CONFIG, OTHER),
        "reward": lambda: reward.fn(url, 0, CONFIG.reward, TURNS),
        "variance_filter": lambda: variance_filter.fn(url, 0, CONFIG.filter, TURNS, OTHER),
        "update": lambda: update.fn(
            url, CONFIG.update, iteration=0, num_iterations=2, seed=0, temperature=1.0, max_response_tokens=8,
            **update_inputs,
        ),
        "evaluate": lambda: evaluate.fn(
            url, 0, "sokoban", CONFIG.environment, CONFIG.agent, CONFIG.rollout, CONFIG.evaluation, OTHER
        ),
    }  # fmt: skip
    with planning():
        return {name: next(iter(call().values())) for name, call in calls.items()}


@pytest.mark.parametrize(
    ("registry", "name", "stages"),
    [
        (ENVIRONMENTS, "sokoban", {"warm_start", "rollout", "evaluate"}),
        (DEMONSTRATORS, "sokoban", {"warm_start"}),
        (AGENT, "prompt", {"warm_start", "rollout", "evaluate"}),
        (AGENT, "parser", {"warm_start", "rollout", "evaluate"}),
        (REWARDS, "format", {"reward"}),
        (FILTERS, "top_fraction", {"variance_filter"}),
        (ADVANTAGES, "gae", {"update"}),
    ],
)
def test_other_code_under_a_name_changes_the_keys_of_the_stages_that_use_it(
    tmp_path: Path,
    mine: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    registry: dict[str, str],
    name: str,
    stages: set[str],
) -> None:
    store = Store(str(tmp_path / "store"))
    before = keys(store)
    mine("def other():\n    return 1\n")
    monkeypatch.setitem(registry, name, "mine_code:other")
    after = keys(store)
    assert {stage for stage in before if before[stage] != after[stage]} == stages
    mine("# a comment\ndef other():\n    '''It tells.'''\n    return 1\n")
    assert keys(store) == after


def put_turns(store: Store) -> None:
    store.put_table(
        "turns", example("turns"), key=TURNS, stage=Stage(name="r", version=1), settings={}, inputs={}, seed=0
    )


def test_a_component_that_is_added_is_paid_and_one_that_is_edited_is_paid_anew(
    tmp_path: Path, mine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path / "store"))
    put_turns(store)

    def total(config: RewardConfig) -> float:
        key = reward.fn(store.url, 0, config, TURNS)["rewards"]
        return sum(store.read_table("rewards", key)["total"].to_pylist())

    num_turns = example("turns").num_rows
    plain = total(RewardConfig())
    mine(BONUS)
    monkeypatch.setitem(REWARDS, "bonus", "mine_code:bonus")
    with_bonus = RewardConfig(components=["environment", "format", "forfeit", "bonus"])
    assert total(RewardConfig()) == plain  # registered, and not chosen
    assert total(with_bonus) == pytest.approx(plain + num_turns)
    mine(BONUS.replace("1.0", "2.0"))
    assert total(with_bonus) == pytest.approx(plain + 2 * num_turns)


def test_the_manifest_names_the_code(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    put_turns(store)
    key = reward.fn(store.url, 0, RewardConfig(components=["environment", "format"]), TURNS)["rewards"]
    code = store.manifest("rewards", key).code
    assert code == {name: code_identity(REWARDS[name]) for name in ("environment", "format")}


def test_code_that_nothing_identifies_is_not_reused_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(str(tmp_path / "store"))
    monkeypatch.setenv("RAGEN_CODE_TOKEN", "of-this-run")
    monkeypatch.setitem(FILTERS, "built", "built_in_memory:keep")
    caplog.set_level(logging.WARNING, "prefect.stages")
    monkeypatch.setattr(logging.getLogger("prefect"), "propagate", True)

    def key() -> str:
        with planning():
            config = FilterConfig.model_construct(**{**FilterConfig().model_dump(), "strategy": "built"})
            return str(variance_filter.fn(store.url, 0, config, TURNS, OTHER)["selection"])

    first = key()
    assert key() == first
    assert caplog.text.count("stored as not reusable") == 1
    monkeypatch.setenv("RAGEN_CODE_TOKEN", "of-another-run")
    code_identity.cache_clear()
    assert key() != first


@pytest.mark.parametrize(
    ("changes", "is_other"),
    [
        ({"deadline_s": 5.0}, True),
        ({"top_p": 0.9}, True),
        ({"max_context_tokens": 2048}, True),
        ({"num_groups": 3}, False),
        ({"temperature": 0.7}, False),
    ],
)
def test_an_evaluation_has_all_settings_of_rollouts_but_those_of_training(
    tmp_path: Path, changes: dict[str, Any], is_other: bool
) -> None:
    def key(settings: RolloutConfig) -> str:
        environment: EnvironmentConfig = CONFIG.environment
        with planning():
            return str(
                evaluate.fn(str(tmp_path), 0, "sokoban", environment, CONFIG.agent, settings, CONFIG.evaluation, OTHER)[
                    "metrics"
                ]
            )

    assert (key(CONFIG.rollout.model_copy(update=changes)) != key(CONFIG.rollout)) == is_other


def test_how_many_empty_iterations_a_run_bears_is_in_no_key(tmp_path: Path) -> None:
    def key(config: FilterConfig) -> str:
        with planning():
            return str(variance_filter.fn(str(tmp_path), 0, config, TURNS, OTHER)["selection"])

    assert key(FilterConfig(max_empty_iterations=7)) == key(FilterConfig())
    assert key(FilterConfig(keep=0.3)) != key(FilterConfig())


def test_a_fresh_run_shares_no_checkpoint(tmp_path: Path) -> None:
    def key(config: StarPOConfig) -> str:
        with planning():
            return str(warm_start.fn(str(tmp_path), config)["checkpoint"])

    assert key(apply_overrides(CONFIG, {"fresh": "today"})) != key(CONFIG)
