"""A run's name stands for one version of the code: edited code makes another run, and cannot use an existing name."""

from collections.abc import Callable
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.core.errors import StoreError
from starpo.ragen.core.lookup import Entry
from starpo.ragen.core.registry import ADVANTAGES
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage
from starpo.tasks import update
from starpo.tasks.loop.run_code import code_of, default_run_name, replay_code

CONFIG = preset("smoke", {"iterations": 2})
SETTINGS = CONFIG.model_dump(mode="json")
ESTIMATOR = "def mine(segments, config):\n    return {}\n"


@pytest.fixture
def edited(mine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Edit the estimator that the settings name."""
    mine(ESTIMATOR)
    monkeypatch.setitem(ADVANTAGES, CONFIG.update.advantage, "mine_code:mine")
    return mine


def test_code_of_covers_settings_and_stages() -> None:
    code = code_of(CONFIG)
    assert {name for name in code if "." not in name} == {
        "warm_start", "evaluate", "rollout", "reward", "variance_filter", "diagnose", "probe", "update",
    }  # fmt: skip
    assert code["update"] == str(update.STAGE.version)
    assert {f"reward.{name}" for name in CONFIG.reward.components} <= code.keys()
    assert {"update.advantage", "update.loss", "variance_filter.strategy", "warm_start.demonstrator"} <= code.keys()


def test_variants_of_panels_count() -> None:
    with_variant = preset("smoke", {"evaluation.variants": {"frozen": {"type": "frozen_lake"}}})
    assert len(code_of(with_variant)["evaluate.environment"].split()) == 2


def test_run_name_changes_with_code(edited: Callable[[str], None]) -> None:
    before = default_run_name("smoke", CONFIG)
    edited(ESTIMATOR.replace("{}", "{'adv': 0}"))
    after = default_run_name("smoke", CONFIG)
    edited(ESTIMATOR + "# said of it\n")
    assert default_run_name("smoke", CONFIG) == before != after


def test_run_name_changes_with_stage_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = default_run_name("smoke", CONFIG)
    monkeypatch.setattr(update, "STAGE", Stage(name="update", version=update.STAGE.version + 1))
    assert default_run_name("smoke", CONFIG) != before


def test_replay_code_has_only_its_stages() -> None:
    assert {name.partition(".")[0] for name in replay_code(CONFIG)} == {"reward", "variance_filter", "update"}


def test_unidentified_code_has_stable_run_name(mine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ADVANTAGES, CONFIG.update.advantage, Entry("nowhere_to_be_found:mine", needs="groups"))
    names = set()
    for process in ("one", "another"):
        mine("")  # clears the caches
        monkeypatch.setenv("STARPO_CODE_TOKEN", process)
        names.add(default_run_name("smoke", CONFIG))
    assert len(names) == 1


def test_same_name_with_edited_code_fails(edited: Callable[[str], None], tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    before = code_of(CONFIG)
    store.runs.create("x", flow="starpo", preset="smoke", config=SETTINGS, code=before)
    store.runs.create("x", flow="starpo", preset="smoke", config=SETTINGS, code=code_of(CONFIG))
    edited(ESTIMATOR.replace("{}", "{'adv': 0}"))
    was, now = before["update.advantage"], code_of(CONFIG)["update.advantage"]
    with pytest.raises(
        StoreError, match=f"(?s)made with other code:\n  update.advantage: was '{was}', is '{now}'\n.*another name"
    ):
        store.runs.create("x", flow="starpo", preset="smoke", config=SETTINGS, code=code_of(CONFIG))
