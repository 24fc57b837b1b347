"""Verification of a run whose environment reads a file: the file as it was, gone, and changed."""

import json
from pathlib import Path

import pytest

import starpo
from starpo.ragen.agents.evaluation import panel
from starpo.ragen.envs.questions.question import load_questions
from starpo.ragen.runs.verify.verdict import CheckResult, Verdict
from starpo.ragen.store import Store
from starpo.tasks.loop.verify import Verification, verify_run
from tests.integration.forging import forge

LINES = "".join(json.dumps({"question": f"{n} + 1?", "answer": n + 1}) + "\n" for n in range(4))
PANEL = "evaluate:questions"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of no iteration on a file that is named relative to the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("sums.jsonl").write_text(LINES)
    result = starpo.evaluate("random", "sums.jsonl", store="store", quiet=True)
    (name,) = result.sweep.subjects["random"]
    return name


def verify(run: str) -> Verification:
    for cached in (load_questions, panel._make_panel):  # a command begins without them
        cached.cache_clear()
    return verify_run(Store("store"), run)


def of_verdict(verification: Verification, *verdicts: Verdict) -> list[CheckResult]:
    return [finding for finding in verification.findings if finding.verdict in verdicts]


def test_file_at_hand_is_verified(run: str) -> None:
    assert verify(run).outcome == "verified"


def test_missing_file_is_not_shown(run: str) -> None:
    digest = Store("store").runs.get(run).config["environment"]["digest"]
    Path("sums.jsonl").rename("moved.jsonl")
    verification = verify(run)
    assert (verification.outcome, verification.exit_code) == ("not shown", 3)
    reasons = of_verdict(verification, Verdict.NOT_SHOWN)
    assert {finding.stage for finding in reasons} == {"record", "warm_start", PANEL}
    for finding in reasons:
        assert f"sums.jsonl cannot be read in {Path.cwd()} (No such file or directory)" in finding.detail
        assert digest in finding.detail
    same = {(finding.stage, finding.check) for finding in of_verdict(verification, Verdict.SAME)}
    assert same == {("record", "seals"), (PANEL, "numbers")}


def test_changed_file_is_a_fault(run: str) -> None:
    Path("sums.jsonl").write_text(LINES + "\n")
    verification = verify(run)
    faults = of_verdict(verification, Verdict.DIFFERENT, Verdict.DAMAGED)
    assert {(finding.stage, finding.check) for finding in faults} == {("record", "place"), (PANEL, "actions")}
    assert all("sums.jsonl has changed: it has the digest" in finding.detail for finding in faults)


def test_missing_file_hides_no_damage(run: str) -> None:
    key = Store("store").runs.iteration(run, 0)[PANEL]["episodes"]
    forge(Path("store", "episodes", key), lambda rows: rows[0].update(success=not rows[0]["success"]))
    Path("sums.jsonl").unlink()
    faults = of_verdict(verify(run), Verdict.DIFFERENT, Verdict.DAMAGED)
    assert (PANEL, "numbers") in {(finding.stage, finding.check) for finding in faults}
