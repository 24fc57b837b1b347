"""`make gpu` in small, on the CPU with a tiny random model: every part measures, the table says what was left out."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from tests.benchmarks.gpu import __main__ as program
from tests.benchmarks.gpu.report import Figure


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gpu", *arguments])
    return program.main()


@pytest.mark.thorough
def test_every_part_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    def in_this_process(part: str, arguments: list[str], _environment: dict[str, str], out: Path, left_s: float) -> str:
        assert left_s > 0
        program.measure(part, out, arguments[arguments.index("--model") + 1], is_small=True)
        return ""

    monkeypatch.setenv("STARPO_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(program, "carried_out", in_this_process)
    monkeypatch.setattr(program, "PARTS", [part for part in program.PARTS if part != "tests"])
    assert called(monkeypatch, "--device", "cpu", "--tiny", "--out", str(tmp_path / "out")) == 0
    table = capsys.readouterr().out.split("vllm", 1)[1]
    written = json.loads((tmp_path / "out" / "figures.json").read_text())
    figures = [Figure(**figure) for figure in written["figures"]]
    assert {figure.part for figure in figures} == {*program.PARTS}
    speeds = {figure.what: figure.value for figure in figures if figure.unit.endswith("/s")}
    assert len(speeds) == 6
    assert min(speeds.values()) > 0
    assert ("outcome", "verified") in {(figure.what, figure.value) for figure in figures if figure.part == "verify"}
    assert {figure.value for figure in figures if figure.unit == "left out"} == {"needs CUDA"}
    assert table.count("the same bytes in 4 repetitions, another process included") == 2
    assert table.count("the same bytes in 3 repetitions, another process included") == 3
    assert "peak memory" in table
    assert written["device"] == "cpu"
    assert "digest" not in table


@pytest.mark.ci
def test_failing_or_slow_part_is_named(tmp_path: Path) -> None:
    arguments = ["--device", "cpu", "--tiny", "--model", str(tmp_path / "missing"), "--out", str(tmp_path)]
    failure = program.carried_out("learning", arguments, dict(os.environ), tmp_path, 120)
    assert failure.startswith("exit code 1: ")
    assert str(tmp_path / "learning.log") in failure
    assert program.carried_out("again", arguments, {}, tmp_path, 0.1) == "the time was up before it ended"
    assert program.carried_out("run", arguments, {}, tmp_path, -1) == "the time was up before it began"


def test_results_that_differ_are_shown() -> None:
    made = [Figure("rollout", "engine", "a", "digest"), Figure("again", "engine", "b", "digest")]
    (row,) = program.repeated(made)
    assert row.value == "2 DIFFERENT results in 2 repetitions, another process included"


def test_missing_gpu_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match=r"^error: torch \S+ .*(CUDA|GPU).*; --device cpu .*$"):
        called(monkeypatch, "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
