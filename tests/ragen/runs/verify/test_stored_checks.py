"""Which checks apply to a stage, and what an error in one of them means."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.core.errors import ArtifactMissingError
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.inputs import VerifiedInputs
from starpo.ragen.runs.verify.scratch import Scratch, Stored
from starpo.ragen.runs.verify.stored_checks import PlannedCheck, StoredStage, planned_checks, run_check
from starpo.ragen.runs.verify.verdict import NotComputedError, Verdict
from starpo.ragen.store import Store
from starpo.schemas.manifest import Manifest
from starpo.schemas.manifest import Stage as StageVersion

CONFIG = preset("smoke")
PRESENT, FAULTY, DROPPED = Stored(), Stored(fault="it is cut short"), Stored(is_dropped=True)
KEPT = Stored(manifest=Manifest.model_construct(stage=StageVersion(name="update", version=1), headline={}))
UPDATE = {"samples": PRESENT, "metrics": PRESENT, "checkpoint": KEPT}
TOKENS, ADVANTAGES, NUMBERS = ("tokens", "samples"), ("advantages", "samples"), ("numbers", "metrics")


def visit(stage: str, artifacts: Iterable[str], *, is_misplaced: bool = False, excuse: str = "") -> Visit:
    keys = dict.fromkeys(artifacts, "a" * 32)
    return Visit(3, f"{stage}:sokoban", stage, keys, is_misplaced=is_misplaced, excuse=excuse)


@pytest.mark.parametrize(
    ("stage", "artifacts", "checks"),
    [
        ("rollout", {"turns": PRESENT}, [("actions", "turns"), ("texts", "turns"), ("numbers", "turns")]),
        ("rollout", {"turns": FAULTY}, []),
        ("rollout", {"turns": DROPPED}, []),
        ("evaluate", {"episodes": PRESENT, "metrics": PRESENT}, [("actions", "episodes"), NUMBERS]),
        ("evaluate", {"episodes": PRESENT, "metrics": FAULTY}, [("actions", "episodes")]),
        ("evaluate", {"episodes": FAULTY, "metrics": PRESENT}, []),
        ("update", UPDATE, [TOKENS, ADVANTAGES, NUMBERS]),
        ("update", UPDATE | {"samples": FAULTY}, [NUMBERS]),
        ("update", UPDATE | {"checkpoint": FAULTY}, [TOKENS, ADVANTAGES]),
        ("diagnose", {"metrics": PRESENT}, []),
    ],
)
def test_plan(stage: str, artifacts: dict[str, Stored], checks: list[tuple[str, str]]) -> None:
    config = CONFIG.model_copy(update={"update": CONFIG.update.model_copy(update={"kl_coefficient": 0.0})})
    plan = planned_checks(visit(stage, artifacts), artifacts, config)
    assert [(check.name, check.kind) for check in plan] == checks


@pytest.mark.parametrize("settings", [{"is_misplaced": True}, {"excuse": "another release made it"}])
def test_advantages_of_other_work_are_unchecked(settings: dict[str, object]) -> None:
    plan = planned_checks(visit("update", UPDATE, **settings), UPDATE, CONFIG)  # type: ignore[arg-type]
    assert [(check.name, check.kind) for check in plan] == [TOKENS, NUMBERS]


def nothing(_: StoredStage) -> list[str]:
    return []


def three(_: StoredStage) -> list[str]:
    return ["one", "two", "three"]


def undecided(_: StoredStage) -> list[str]:
    raise NotComputedError(Verdict.NOT_SHOWN, "it has no tokenizer")


def missing(_: StoredStage) -> list[str]:
    raise ArtifactMissingError("no artifact turns/a\nRun it again")


def broken(_: StoredStage) -> Iterable[str]:
    yield "a difference before the error"
    raise KeyError("status")


@pytest.mark.parametrize(
    ("differences", "verdict", "detail"),
    [
        (nothing, Verdict.SAME, ""),
        (three, Verdict.DIFFERENT, "one (and 2 more)"),
        (undecided, Verdict.NOT_SHOWN, "it cannot be checked: it has no tokenizer"),
        (missing, Verdict.DAMAGED, "it cannot be checked: no artifact turns/a"),
        (broken, Verdict.DIFFERENT, "the check fails: KeyError: 'status'"),
    ],
)
def test_result(differences: object, verdict: Verdict, detail: str, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with Scratch(store) as scratch, ModelPlacement(is_here=True) as placement:
        stage = StoredStage(visit("rollout", ["turns"]), {}, CONFIG, VerifiedInputs(store, scratch, placement))
        result = run_check(PlannedCheck("actions", "turns", differences), stage)  # type: ignore[arg-type]
    assert (result.verdict, result.detail) == (verdict, detail)
    assert (result.iteration, result.stage, result.check) == (3, "rollout:sokoban", "actions")
    assert result.artifact == f"turns/{'a' * 32}"
