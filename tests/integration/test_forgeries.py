"""Self-consistent forgeries of everything in a stored run are found or named as not shown; intact runs are verified."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.flows.replay import replay
from starpo.ragen.core.errors import EngineError
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.runs.work import Output
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.copying import copy_run
from starpo.ragen.store.remote.opening import open_location
from starpo.tasks import update as update_stage
from starpo.tasks.loop.verify import verify_run
from tests.integration.forgeries import (
    DIAGNOSE,
    EVALUATE,
    FILTER,
    FOUND,
    LAST,
    NOT_SHOWN,
    RECORD,
    REWARD,
    ROLLOUT,
    UPDATE,
    WARM_START,
    moved,
    no_torch_difference_but_seconds,
)  # fmt: skip
from tests.integration.forging import (
    AFTER_START,
    RUN,
    edit_json,
    read_records,
    strip_seals,
    verify,
    write_records,
)  # fmt: skip
from tests.integration.training import train_run

pytestmark = pytest.mark.timeout(600)

SETTINGS = {"evaluation.num_prompts": 4}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, begun: Callable[..., str]) -> Path:
    folder = tmp_path_factory.mktemp("forgeries") / "store"
    train_run(preset("smoke", SETTINGS), store=begun(folder, SETTINGS), run=RUN)
    return folder


@pytest.mark.parametrize("name", FOUND)
def test_a_forgery_is_found(folder: Path, name: str) -> None:
    forgery, options, place = FOUND[name]
    forgery(folder)
    verification = verify(folder, **options)
    faults = [finding for finding in verification.findings if finding.verdict.is_fault]
    assert (verification.outcome, verification.exit_code) == ("faults", 1)
    assert f"{faults[0].iteration} {faults[0].stage} {faults[0].check} {faults[0].verdict}" == place
    assert all(finding.detail for finding in faults)


@pytest.mark.parametrize("name", NOT_SHOWN)
def test_forgery_named_as_not_shown(folder: Path, name: str) -> None:
    forgery, options = NOT_SHOWN[name]
    forgery(folder)
    verification = verify(folder, **options)
    assert (verification.outcome, verification.exit_code) == ("not shown", 3)
    assert all(f.detail for f in verification.findings if f.verdict is Verdict.NOT_SHOWN)


@pytest.mark.thorough
def test_forged_warm_start_time_is_detected(folder: Path) -> None:
    no_torch_difference_but_seconds(folder)
    assert verify(folder, **WARM_START).exit_code == 1


def test_unforged_run_is_verified(folder: Path) -> None:
    """The options that find the forgeries find nothing in an intact run."""
    for options in (RECORD, UPDATE, WARM_START, REWARD, FILTER, DIAGNOSE, ROLLOUT, LAST):
        verification = verify(folder, **options)
        assert verification.outcome == "verified", verification.findings
    write_records(folder, read_records(folder))  # as every forgery of records does
    assert verify(folder, **RECORD).outcome == "verified"


def test_record_fault_names_file_and_values(folder: Path) -> None:
    moved(EVALUATE, 0, 2)(folder)
    [finding] = [f for f in verify(folder, **RECORD).findings if f.verdict.is_fault]
    assert (finding.iteration, finding.stage, finding.check) == (2, EVALUATE, "place")
    records = read_records(folder)[0]
    assert f"runs/{RUN}/iterations/00002.json" in finding.detail
    assert f"episode_turns/{records[EVALUATE]['episode_turns']}" in finding.detail
    assert "settings.iteration is 0, expected 2" in finding.detail
    assert f"inputs.checkpoint is '{records['warm_start']['checkpoint']}', expected" in finding.detail
    assert "start the run again with the same settings" in finding.detail


def test_restart_mends_the_record(folder: Path) -> None:
    """Every message about a faulty record recommends this. Nothing is recomputed."""
    moved(EVALUATE, 0, 2)(folder)
    strip_seals(folder)
    before = set(folder.glob("*/*/manifest.json"))
    train_run(preset("smoke", SETTINGS), store=str(folder), run=RUN)
    assert set(folder.glob("*/*/manifest.json")) == before
    assert verify(folder, **RECORD).outcome == "verified"


def test_records_without_seals_are_not_shown(folder: Path) -> None:
    strip_seals(folder)
    verification = verify(folder, **RECORD)
    assert (verification.outcome, verification.exit_code) == ("not shown", 3)
    [finding] = [f for f in verification.findings if f.verdict is not Verdict.SAME]
    assert "names no digest" in finding.detail


def outcome(folder: Path, run: str, **options: Any) -> tuple[str, list[str]]:
    """Verify a run; returns the outcome, and details of findings that are not the same."""
    verification = verify_run(Store(str(folder)), run, **options)
    return verification.outcome, [f.detail for f in verification.findings if f.verdict is not Verdict.SAME]


def test_a_copied_run_is_verified(folder: Path, tmp_path: Path) -> None:
    copy_run(open_location(str(folder)), RUN, open_location(str(tmp_path / "copy")))
    assert outcome(tmp_path / "copy", RUN, **AFTER_START) == ("verified", [])


@pytest.mark.thorough
def test_failed_run_verified_up_to_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Online-k, the second update uses the rollout and the rewards of the first."""
    settings = preset("smoke", {**SETTINGS, "online_k": 2})
    with monkeypatch.context() as patch:
        train = update_stage._train

        def fail(*given: Any) -> Iterator[Output]:
            *_, work, _store, _placement = given
            if work.settings["iteration"] == 1:
                raise EngineError("the machine was switched off")
            return train(*given)

        patch.setattr(update_stage, "_train", fail)
        with pytest.raises(EngineError):
            train_run(settings, store=str(folder), run="twice")
    status, details = outcome(folder, "twice")
    assert status == "not shown"
    assert any(
        "the run has not come to its end (its state is failed): the record names no update" in each for each in details
    )
    train_run(settings, store=str(folder), run="twice")
    assert outcome(folder, "twice") == ("verified", [])
    records = Store(str(folder)).runs.iterations("twice")
    assert records[0]["rollout"] == records[1]["rollout"]


@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize(
    "options",
    [
        {"overrides": {"update.advantage_scale": "none"}, "should_evaluate": True},
        {"start": 1, "overrides": {"filter.keep": 1.0}},
        {"should_update": False},
    ],
)
def test_a_replay_is_verified(folder: Path, options: dict[str, Any]) -> None:
    assert outcome(folder, replay(RUN, store=str(folder), **options)) == ("verified", [])


@pytest.mark.usefixtures("prefect_server")
def test_replay_over_other_rollout_is_detected(folder: Path) -> None:
    """The rollout that a replay reuses in an iteration must be the one in its base's record."""
    name = replay(RUN, should_update=False, store=str(folder))
    file = folder / "runs" / name / "iterations" / "00001.json"
    records = read_records(folder)
    edit_json(file, lambda record: record["stages"].update(rollout=records[0]["rollout"]))
    status, details = outcome(folder, name)
    assert status == "faults"
    assert any(f"what is reused here is turns/{records[1]['rollout']['turns']}" in each for each in details)


@pytest.mark.usefixtures("prefect_server")
def test_replay_without_base_not_shown(folder: Path) -> None:
    name = replay(RUN, should_update=False, store=str(folder))
    shutil.rmtree(folder / "runs" / RUN)
    status, details = outcome(folder, name)
    assert status == "not shown"
    assert any("what it replays is not here: there is no run 'mine'" in each for each in details)
