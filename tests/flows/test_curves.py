"""Curves of success in a terminal: right heights, colour only where it is wanted, and none that cannot be written."""

from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest

from starpo.flows.cli.show import print_run
from starpo.flows.console.curves import SuccessReader, curve_lines, sparkline
from starpo.flows.console.follow import follow_run
from starpo.flows.console.terminal import Console
from starpo.flows.outcome import Outcome
from starpo.flows.presets import preset
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage

CURVES = {"panel success": [0.0, None, 1.0], "training success": [0.5]}


@pytest.fixture
def store(tmp_path) -> Store:
    """Store with a run that played three rollouts with rising success, and goes on."""
    store = Store(str(tmp_path / "store"))
    store.runs.create("rising", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    for iteration in range(3):
        measure(store, iteration)
    store.runs.set_state("rising", "running", "rollout", {"iteration": 3.0, "iterations": 9.0})
    return store


def measure(store: Store, iteration: int) -> None:
    stage = Stage(name="diagnose", version=1)
    key = stage_key(stage, {"iteration": iteration}, {}, 0)
    values = {"rollout/success_rate": 0.25 * iteration}
    facts = Facts(key=key, stage=stage, settings={"iteration": iteration}, inputs={}, seed=0)
    store.put_table("metrics", metrics_table(iteration, "diagnose", values), facts)
    store.runs.record_stage("rising", iteration, "diagnose", {"metrics": key})


def test_each_eighth_has_its_height() -> None:
    assert sparkline([n / 8 for n in range(9)]) == "▁▂▃▄▅▆▇██"
    assert sparkline([]) == ""


def test_long_curve_is_averaged_evenly() -> None:
    assert sparkline([0.0] * 500 + [1.0] * 500, width=4) == "▁▁██"
    assert len(sparkline([0.5] * 1001)) == 40


def test_one_value_is_no_curve() -> None:
    [line] = curve_lines("utf-8", CURVES)
    assert line.plain == "panel success     ▁█  0.0% to 100.0%, 2 points"


def test_colour_follows_the_terminal(monkeypatch) -> None:
    def printed(**options) -> str:
        file = StringIO()
        console = Console(file=file, **options)
        for line in curve_lines("utf-8", CURVES):
            console.print(line)
        return file.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[36m▁█\x1b[0m" in printed(force_terminal=True)
    assert "\x1b" not in printed()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in printed(force_terminal=True)


def test_ascii_terminal_gets_no_curve() -> None:
    assert curve_lines(Console(file=TextIOWrapper(BytesIO(), encoding="ascii")).encoding, CURVES) == []


def test_show_draws_success(store: Store, capsys) -> None:
    print_run(store, "rising", as_json=False)
    assert "training success  ▁▃▅  0.0% to 50.0%, 3 points" in capsys.readouterr().out
    print_run(store, "rising", as_json=True)
    assert "▁" not in capsys.readouterr().out


def test_followed_curve_grows(store: Store) -> None:
    reader = SuccessReader(store)
    assert reader.curves("rising", 1)["training success"] == [0.0, 0.25, 0.5]
    measure(store, 3)
    assert reader.curves("rising", 1)["training success"] == [0.0, 0.25, 0.5]
    assert reader.curves("rising", 2)["training success"] == [0.0, 0.25, 0.5, 0.75]
    assert reader.curves("no-such-run", 3) == {}


def test_follow_draws_in_terminals_alone(store: Store) -> None:
    def followed(**options) -> str:
        file = StringIO()
        follow_run(store, "rising", Console(file=file, width=80, **options), lambda: Outcome("completed", ""))
        return file.getvalue()

    assert "training success  " in followed(force_terminal=True, no_color=True)
    assert "▁▃▅" in followed(force_terminal=True)
    assert "▁▃▅" not in followed()


def test_unreadable_curve_stops_nothing(store: Store) -> None:
    [file, *_] = Path(store.url).glob("metrics/**/*.parquet")
    file.chmod(0o644)
    file.write_bytes(b"no parquet")
    assert SuccessReader(store).curves("rising", 1) == {}
