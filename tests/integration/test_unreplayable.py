"""A run in an environment that cannot be replayed: what it played is marked, verified where possible, and reported."""

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from starpo.flows.cli.lineage import lineage_document
from starpo.flows.cli.show import print_run
from starpo.flows.presets import preset
from starpo.ragen.envs.bandit.environment import Bandit, BanditSettings
from starpo.ragen.envs.make import settings_type
from starpo.ragen.evidence.audit.lineage import lineage
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.runs.verify.unreplayable import unreplayable
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.store import Store
from starpo.tasks.loop.verify import Verification
from tests.integration.forging import RUN, artifact, forge, manifest_of, verify
from tests.integration.training import train_run

pytestmark = pytest.mark.timeout(600)

REASON = "what its arms pay is drawn by the clock"
CLOCK = itertools.count()
PLAYED = {
    ("warm_start", "checkpoint"), ("rollout", "turns"), ("rollout", "actions"), ("evaluate:ENV", "episodes"),
    ("evaluate:ENV", "episode_turns"),    ("evaluate:ENV", "metrics"), ("evaluate:ENV", "actions"),
}  # fmt: skip


class BanditByTheClock(Bandit):
    """Bandit that declares that it cannot be replayed, and cannot."""

    replay_fault = REASON

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, dict[str, Any]]:
        return super().reset(seed=seed, dynamics_seed=dynamics_seed + 1000 * next(CLOCK))


TARGET = f"{__name__}:BanditByTheClock"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unreplayable") / "store"
    settings = {
        "environment": {"type": TARGET},
        "policy.warm_start_steps": 90,
        "policy.demonstration_turns": 2000,
        "policy.demonstration_skill": 0.5,  # every group pulls both arms, so each can be trained on
        "agent.max_turns": 1,
        "agent.max_actions": 1,
        "agent.max_actions_per_turn": 1,
    }
    train_run(preset("smoke", settings), store=str(folder), run=RUN)
    return folder


def not_shown(verification: Verification) -> set[tuple[str, str]]:
    unshown = [finding for finding in verification.findings if finding.verdict is Verdict.NOT_SHOWN]
    assert all(f"cannot be replayed ({REASON})" in finding.detail for finding in unshown)
    return {(finding.stage.replace(TARGET, "ENV"), finding.check) for finding in unshown}


def test_rollouts_not_shown_rest_verified(finished: Path) -> None:
    verification = verify(finished)
    assert verification.outcome == "not shown"
    assert not_shown(verification) == PLAYED
    same = Counter(finding.stage for finding in verification.findings if finding.verdict is Verdict.SAME)
    assert {"reward", "variance_filter", "update", "rollout", "diagnose"} <= same.keys()


def test_forged_rewards_still_detected(folder: Path) -> None:
    def change(rows: list[dict[str, Any]]) -> None:
        rows[0]["total"] += 1.0

    forge(artifact(folder, 0, "reward", "rewards"), change)
    assert verify(folder, last=0, stages=["reward"]).outcome == "faults"


def test_only_played_data_carry_the_mark(finished: Path) -> None:
    manifests = {path.parent.parent.name: manifest_of(path.parent) for path in finished.glob("*/*/manifest.json")}
    marks = {kind: manifest.replay_fault for kind, manifest in manifests.items()}
    assert marks["turns"] == marks["episodes"] == REASON
    assert marks["rewards"] == marks["selection"] == marks["samples"] == ""
    assert not manifests["turns"].is_deterministic
    assert '"replay_fault"' not in (artifact(finished, 0, "reward", "rewards") / "manifest.json").read_text()


def test_mark_is_shown_with_run(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(str(finished))
    print_run(store, RUN, as_json=False)
    assert f"cannot be replayed: {REASON}" in " ".join(capsys.readouterr().out.split())
    assert f"cannot be replayed: {REASON}" in render_report(gather(store, RUN))
    works = lineage_document(lineage(store, f"{RUN}:0:update")).works
    assert {work.stage for work in works if work.replay_fault} == {"warm_start", "rollout", "evaluate"}


def test_replay_mark_excuses_no_forgery(finished: Path) -> None:
    marked = manifest_of(artifact(finished, 0, "rollout", "turns")).model_copy(update={"replay_fault": "so it says"})
    of_a_user = settings_type(f"{Bandit.__module__}:Bandit")()  # declares no fault
    assert unreplayable(of_a_user, marked) == f"the environment {of_a_user.type} cannot be replayed (so it says)"
    assert unreplayable(of_a_user, None) == ""
    assert unreplayable(BanditSettings(), marked) == ""
    assert f"({REASON})" in unreplayable(settings_type(TARGET)(), marked)  # its own declaration comes first
