"""`starpo verify` on a real run: intact, or with results that are different, damaged or not repeatable."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from starpo.flows import cli
from starpo.flows.presets import preset
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.runs.verify.verdict import CheckResult, Verdict
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage
from starpo.tasks import reward as reward_stage
from starpo.tasks.loop.verify import Verification
from tests.integration.forging import RUN, artifact, forge, reseal, verify
from tests.integration.training import train_run

pytestmark = pytest.mark.timeout(600)

CHECKS = {
    "record": {"seals", "place"},
    "warm_start": {"checkpoint"},
    "evaluate:sokoban": {"episode_turns", "episodes", "metrics", "actions", "numbers"},
    "rollout": {"turns", "actions", "texts", "numbers"},
    "reward": {"rewards"},
    "variance_filter": {"selection"},
    "diagnose": {"metrics"},
    "probe": {"metrics"},
    "update": {"checkpoint", "samples", "metrics", "tokens", "numbers", "advantages"},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, begun: Callable[..., str]) -> Path:
    folder = tmp_path_factory.mktemp("verify") / "store"
    train_run(preset("smoke"), store=begun(folder), run=RUN)
    return folder


def faults(verification: Verification) -> dict[tuple[int, str, str], CheckResult]:
    by_place = {(f.iteration, f.stage, f.check): f for f in verification.findings if f.verdict is not Verdict.SAME}
    assert verification.is_faultless == (not any(f.verdict.is_fault for f in by_place.values()))
    return by_place


def snapshot(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}


def test_untouched_run_verified_and_unchanged(folder: Path) -> None:
    before, visits = snapshot(folder), []
    verification = verify(folder, on_visit=lambda done, total, visit: visits.append((done, total)))
    assert faults(verification) == {}
    checks: dict[str, set[str]] = {}
    for finding in verification.findings:
        checks.setdefault(finding.stage, set()).add(finding.check)
    assert checks == CHECKS
    assert Counter(f.check for f in verification.findings if f.stage == "update") == dict.fromkeys(CHECKS["update"], 2)
    assert visits == [(number, len(visits)) for number in range(len(visits))]
    assert snapshot(folder) == before


def test_episodes_played_here_not_by_actors(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors on other nodes cannot read checkpoints from the scratch store, which is a folder on this machine."""

    def no_actors(*_: object) -> None:
        raise AssertionError("Ray was asked for")

    monkeypatch.setenv("STARPO_POOL", "ray")
    monkeypatch.setattr("starpo.ragen.runs.players.Players._actors", no_actors)
    assert faults(verify(folder, stages=["rollout", "evaluate"])) == {}


def test_flipped_byte_named_rest_verified(folder: Path) -> None:
    place = artifact(folder, 0, "rollout", "turns")
    content = bytearray((place / "part-00000.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (place / "part-00000.parquet").write_bytes(content)
    stages = ["rollout", "reward", "variance_filter", "update"]
    verification = verify(folder, last=0, stages=stages)
    by_place = faults(verification)
    assert set(by_place) == {(0, "rollout", "turns")}
    finding = by_place[0, "rollout", "turns"]
    assert finding.verdict is Verdict.DAMAGED
    assert finding.artifact == f"turns/{place.name}"
    assert "sha256 differs" in finding.detail
    assert "its inputs reproduce it" in finding.detail
    assert {f.stage for f in verification.findings} == {"record", *stages}


def test_missing_input_is_a_fault(folder: Path) -> None:
    place = artifact(folder, 0, "variance_filter", "selection")
    shutil.rmtree(place)
    verification = verify(folder, last=0, stages=["update"])
    assert verification.exit_code == 1
    by_place = {key: finding for key, finding in faults(verification).items() if key[2] != "numbers"}
    assert {finding.verdict for finding in by_place.values()} == {Verdict.DAMAGED}
    assert all(f"selection/{place.name}" in finding.detail for finding in by_place.values())


@pytest.fixture
def sloppy_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learner whose first update is slightly wrong."""
    honest, calls = TorchLearner.save, []

    def save(self: TorchLearner, folder: str, checkpoint_key: str) -> None:
        if not calls:
            with torch.no_grad():
                next(self._checkpoint.policy.parameters()).add_(1e-3)  # type: ignore[union-attr]
        calls.append(checkpoint_key)
        honest(self, folder, checkpoint_key)

    monkeypatch.setattr(TorchLearner, "save", save)


@pytest.mark.usefixtures("sloppy_learner")
def test_difference_not_passed_to_next_update(folder: Path) -> None:
    by_place = faults(verify(folder, stages=["update"]))
    assert set(by_place) == {(0, "update", "checkpoint")}
    finding = by_place[0, "update", "checkpoint"]
    assert finding.verdict is Verdict.DIFFERENT
    assert "'model.safetensors'" in finding.detail
    assert "by at most 0.001" in finding.detail


def test_other_stage_version_is_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward_stage, "STAGE", Stage(name="reward", version=99))
    assert faults(verify(folder, last=0, stages=["reward"])) == {}
    forge(artifact(folder, 0, "reward", "rewards"), lambda rows: [row.update(normalised_return=9.0) for row in rows])
    [finding] = faults(verify(folder, last=0, stages=["reward"])).values()
    assert finding.verdict is Verdict.NOT_SHOWN
    assert "made by version 1 of the stage, and this release has version 99" in finding.detail


def test_dropped_checkpoint_is_proved_and_used(folder: Path) -> None:
    Store(str(folder)).drop("checkpoint", artifact(folder, 0, "update", "checkpoint").name)
    assert faults(verify(folder, stages=["update"])) == {}
    derived = verify(folder, first=1, last=1, stages=["evaluate"])
    assert faults(derived) == {}
    assert len(derived.findings) == 2 + 5


def command(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run `starpo verify` in this process and return its exit code."""
    monkeypatch.setattr("sys.argv", ["starpo", "verify", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def test_command_prints_table_and_exits_0(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (RUN, "--store", str(finished), "--to", "0", "--stage", "reward", "--stage", "variance_filter")
    assert command(*arguments, monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out
    assert "variance_filter" in out
    assert out.rstrip().endswith(" s: verified")
    assert command(*arguments, "--json", monkeypatch=monkeypatch) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["is_faultless"] is True
    checks = {(f["check"], f["verdict"]) for f in facts["findings"]}
    assert checks == {(check, "same") for check in ("seals", "place", "rewards", "selection")}
    assert (facts["outcome"], facts["exit_code"]) == ("verified", 0)


def test_command_names_sampled_iterations(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (RUN, "--store", str(finished), "--stage", "variance_filter", "--sample", "1%")
    assert command(*arguments, monkeypatch=monkeypatch) == 0
    out = capsys.readouterr().out
    assert command(*arguments, "--json", monkeypatch=monkeypatch) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["num_iterations"] == 1
    assert f"sampled iterations: {facts['iterations'][0]}\n" in out


def test_command_names_fault_and_exits_1(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = artifact(folder, 0, "reward", "rewards")
    os.truncate(place / "part-00000.parquet", 100)
    assert command(RUN, "--store", str(folder), "--to", "0", "--stage", "reward", monkeypatch=monkeypatch) == 1
    out = capsys.readouterr().out
    assert f"damaged: iteration 0, reward, rewards (rewards/{place.name}): " in out
    assert "100 bytes" in out
    assert out.rstrip().endswith(" s: NOT verified: faults: 1")


def test_command_names_unshown_and_exits_3(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reseal(artifact(folder, 0, "rollout", "turns"), is_deterministic=False)
    arguments = (RUN, "--store", str(folder), "--to", "0", "--stage", "rollout")
    assert command(*arguments, monkeypatch=monkeypatch) == 3
    out = capsys.readouterr().out
    assert "not shown: rollout (1): its manifest says that the work is not deterministic" in out
    assert out.rstrip().endswith(" s: no difference found, but 1 of 6 checks are NOT SHOWN")
    assert command(*arguments, "--json", monkeypatch=monkeypatch) == 3
    facts = json.loads(capsys.readouterr().out)
    assert (facts["outcome"], facts["exit_code"], facts["is_faultless"]) == ("not shown", 3, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["min"], "there is no run 'min'"),
        ([RUN, "--stage", "rolout"], "did you mean rollout?"),
        ([RUN, "--from", "9"], "selects no iteration of run 'mine', which has 0 to 2"),
        ([RUN, "--sample", "lots"], "--sample lots is not a share"),
        ([RUN, "--sample", "0%"], "--sample 0% is not a share"),
        ([RUN, "--sample", "0.5"], "--sample 0.5 is not a share"),
    ],
)
def test_bad_arguments_are_one_message(
    finished: Path,
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(*arguments, "--store", str(finished), monkeypatch=monkeypatch) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert "Traceback" not in captured.err
