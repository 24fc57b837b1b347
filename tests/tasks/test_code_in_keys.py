"""Code that settings name is part of the cache key: edited or added code is executed, not served from the store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.config.diagnostics import DiagnosticsConfig
from starpo.ragen.config.evaluation import EvaluationConfig
from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.identity import code_identity
from starpo.ragen.core.registry import ADVANTAGES, ENVIRONMENTS, FILTERS, PROMPTS, REWARDS, SCENES
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.mixture.environment import MixturePart, MixtureSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from starpo.tasks.evaluate import evaluate
from starpo.tasks.reward import reward
from starpo.tasks.rollout import rollout
from starpo.tasks.update import update
from starpo.tasks.variance_filter import variance_filter
from starpo.tasks.warm_start import warm_start
from tests.examples import example

CONFIG = StarPOConfig(environment=SokobanSettings(observation="compact"), evaluation=EvaluationConfig(num_prompts=4))
TURNS, OTHER = "a" * 32, "b" * 32

BASE = "from starpo.ragen.envs.sokoban.environment import Sokoban\n\n"
BONUS = "import numpy as np\n\ndef bonus(turns, config):\n    return np.full(turns.num_rows, 1.0)\n"


def evaluation(rollout: RolloutConfig = CONFIG.rollout) -> Work:
    return evaluate(0, "sokoban", CONFIG.environment, CONFIG.agent, rollout, CONFIG.evaluation, OTHER, lineage="")


def keys() -> dict[str, str]:
    """Return stage -> key."""
    works = [
        warm_start(CONFIG),
        rollout(0, CONFIG, OTHER),
        reward(CONFIG.reward, TURNS),
        variance_filter(CONFIG.filter, TURNS, OTHER),
        update(CONFIG, 0, OTHER, OTHER, {"turns": OTHER, "rewards": OTHER, "selection": OTHER}),
        evaluation(),
    ]
    return {work.stage.name: work.key for work in works}


def test_stored_tokens_change_no_key() -> None:
    storing = CONFIG.model_copy(update={"diagnostics": DiagnosticsConfig(should_store_tokens=True)})
    data = {"turns": OTHER, "rewards": OTHER, "selection": OTHER}
    plain, more = (update(config, 0, OTHER, OTHER, data) for config in (CONFIG, storing))
    assert plain.key == more.key
    assert set(more.outputs) - set(plain.outputs) == {"trained_tokens"}


@pytest.mark.parametrize(
    ("registry", "name", "stages"),
    [
        (ENVIRONMENTS, "sokoban", {"warm_start", "rollout", "evaluate"}),
        (PROMPTS, "full", {"warm_start", "rollout", "evaluate"}),
        (REWARDS, "format", {"reward"}),
        (FILTERS, "top_fraction", {"variance_filter"}),
        (ADVANTAGES, "gae", {"update"}),
    ],
)
def test_changed_code_changes_only_its_stages(
    mine: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    registry: dict[str, str],
    name: str,
    stages: set[str],
) -> None:
    before = keys()
    other = (
        f"{BASE}class other(Sokoban):\n    seen = 1\n" if registry is ENVIRONMENTS else "def other():\n    return 1\n"
    )
    mine(other)
    monkeypatch.setitem(registry, name, "mine_code:other")
    after = keys()
    assert {stage for stage in before if before[stage] != after[stage]} == stages
    mine(other.replace(":\n", ":  # a comment\n\n"))
    assert keys() == after


def test_reward_key_covers_scene_reader(mine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plans = RewardConfig(components=["environment", "agreement"])
    before, plain = reward(plans, TURNS), reward(CONFIG.reward, TURNS)
    mine("def scene(observation, actions, info):\n    return None\n")
    monkeypatch.setitem(SCENES, "sokoban", "mine_code:scene")
    assert reward(plans, TURNS) != before
    assert reward(CONFIG.reward, TURNS) == plain


def test_keys_cover_code_of_mixture_parts(mine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"boxes": MixturePart(environment=CONFIG.environment), "bandit": MixturePart(environment=BanditSettings())}
    mixed = CONFIG.model_copy(update={"environment": MixtureSettings(parts=parts)})

    def works() -> list[Work]:
        cell = "mixture", mixed.environment, mixed.agent, mixed.rollout, mixed.evaluation, OTHER
        return [warm_start(mixed), rollout(0, mixed, OTHER), evaluate(0, *cell, lineage="")]

    before = works()
    assert {"environment of boxes", "demonstrator of boxes", "lessons of bandit"} <= before[0].code.keys()
    mine(f"{BASE}class other(Sokoban):\n    seen = 1\n")
    monkeypatch.setitem(ENVIRONMENTS, "sokoban", "mine_code:other")
    assert not set(before) & set(works())


def test_reward_key_covers_types_of_parts() -> None:
    plans = RewardConfig(components=["environment", "agreement"])
    types = {"boxes": "sokoban"}
    assert reward(plans, TURNS, types=types) != reward(plans, TURNS)
    assert reward(CONFIG.reward, TURNS, types=types) == reward(CONFIG.reward, TURNS)  # no component reads states


def test_reasoning_form_adds_its_code() -> None:
    formed = CONFIG.agent.model_copy(update={"prompt": "full", "form": "grounding"})
    code = rollout(0, CONFIG.model_copy(update={"agent": formed}), OTHER).code
    assert code.keys() - rollout(0, CONFIG, OTHER).code.keys() == {"form"}


def test_demonstrator_changes_only_warm_start(mine: Callable[[str], None]) -> None:
    mine("from starpo.ragen.envs.sokoban.demonstrations import demonstrate\n\nother = demonstrate\n")
    mine_too = {"policy.demonstrator": "mine_code:other"}
    before, after = warm_start(CONFIG), warm_start(apply_overrides(CONFIG, mine_too))
    assert before.key != after.key
    assert before.identities["environment"] == after.identities["environment"]


def put_turns(store: Store) -> None:
    store.put_table(
        "turns", example("turns"), Facts(key=TURNS, stage=Stage(name="r", version=1), settings={}, inputs={}, seed=0)
    )


@pytest.mark.ci
def test_added_and_edited_components_are_repaid(
    tmp_path: Path, mine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path / "store"))
    put_turns(store)

    def total(config: RewardConfig) -> float:
        key = reward(config, TURNS).carry_out(store)["rewards"]
        return sum(store.read_table("rewards", key)["total"].to_pylist())

    num_turns = example("turns").num_rows
    plain = total(RewardConfig())
    mine(BONUS)
    monkeypatch.setitem(REWARDS, "bonus", "mine_code:bonus")
    with_bonus = RewardConfig(components=["environment", "format", "forfeit", "bonus"])
    assert total(RewardConfig()) == plain  # registered but not chosen
    assert total(with_bonus) == pytest.approx(plain + num_turns)
    mine(BONUS.replace("1.0", "2.0"))
    assert total(with_bonus) == pytest.approx(plain + 2 * num_turns)


def test_the_manifest_names_the_code(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    put_turns(store)
    key = reward(RewardConfig(components=["environment", "format"]), TURNS).carry_out(store)["rewards"]
    code = store.manifest("rewards", key).code
    assert code == {name: code_identity(REWARDS[name]) for name in ("environment", "format")}


def test_unidentifiable_code_is_not_reused(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("STARPO_CODE_TOKEN", "of-this-run")
    monkeypatch.setitem(FILTERS, "built", "built_in_memory:keep")

    def key() -> str:
        config = FilterConfig.model_construct(**{**FilterConfig().model_dump(), "strategy": "built"})
        return variance_filter(config, TURNS, OTHER).key

    first = key()
    assert key() == first
    assert caplog.text.count("stored as not reusable") == 1
    monkeypatch.setenv("STARPO_CODE_TOKEN", "of-another-run")
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
def test_evaluation_key_covers_sampling_settings(changes: dict[str, Any], is_other: bool) -> None:
    assert (evaluation(CONFIG.rollout.model_copy(update=changes)) != evaluation()) == is_other


def test_filter_key_ignores_empty_iterations_limit() -> None:
    def work(**settings: Any) -> Work:
        return variance_filter(FilterConfig(**settings), TURNS, OTHER)

    assert work(max_empty_iterations=7) == work()
    assert work(keep=0.3) != work()


def test_a_fresh_run_shares_no_checkpoint() -> None:
    assert warm_start(apply_overrides(CONFIG, {"fresh": "today"})) != warm_start(CONFIG)
