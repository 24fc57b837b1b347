"""Output of the commands at 80 and at 200 columns: nothing is cut, broken or left out."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.flows.console.studies import print_result
from starpo.flows.console.table import cell
from starpo.flows.presets import preset
from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.ragen.studies.ablation import AblationResult, CellResult, MatchedDifference, PanelResult
from starpo.ragen.studies.leaderboard import Standing, SweepResult
from starpo.ragen.studies.scores import Comparison, Score
from starpo.ragen.studies.studies import Ablations, Sweeps
from starpo.ragen.studies.sweep_tables import sweep_tables
from starpo.ragen.studies.tables import ablation_tables
from starpo.schemas.manifest import Stage
from tests.examples import example_turns

WIDTHS = pytest.mark.parametrize("width", [80, 200])
LONG = "replay-of-sokoban-starpo-s-s1-f0664c94-with-a-name-as-long-as-names-get"
PANELS = ["sokoban", "SokobanNewVocab", "FrozenLakeNoSlip"]


def words(rows: Iterable[Mapping[str, object]]) -> Counter[str]:
    return Counter(word for row in rows for value in row.values() for word in cell(value).split())


def assert_whole(text: str, rows: list[Mapping[str, object]], width: int) -> None:
    """Assert that every word of every cell and every column's name is shown whole, and that all lines fit."""
    assert rows
    assert not words(rows) - Counter(text.split())
    for name in rows[0]:  # exact in results of SQL, else with spaces
        assert name in text.split() or set(name.replace("_", " ").split()) <= set(text.split())
    assert max(map(len, text.splitlines())) <= width


@pytest.fixture
def sweep_result() -> SweepResult:
    """Two runs, one with a long name, on three panels: eleven columns, of which two are intervals."""
    score = {"success": 0.375, "low": 0.137, "high": 0.694}
    scores = dict.fromkeys(PANELS, Score(seeds=[0], num_prompts=8, num_episodes=8, **score))
    difference = Comparison(
        mean=-0.125, low=-0.5, high=0.25, p_value=0.25, adjusted_p_value=0.5, num_pairs=8, num_up=1, num_down=2,
        num_needed=240,
    )  # fmt: skip
    leaderboard = [
        Standing(rank=n + 1, run=run, iteration=20, temperature=0.5, difference=difference if n else None,
                 scores=scores, **score)
        for n, run in enumerate([LONG, "base"])
    ]  # fmt: skip
    return SweepResult(
        name="s", sweep={"name": "s", "runs": [LONG, "base"]}, runs={LONG: "sokoban", "base": "sokoban"}, cells={},
        environments=PANELS, leaderboard=leaderboard,
    )  # fmt: skip


@WIDTHS
def test_wide_leaderboard_is_not_cut(sweep_result, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(Sweeps, "get", lambda *_: sweep_result)
    print_result(Sweeps("store"), "s", as_json=False)
    text = capsys.readouterr().out.partition("success: mean over")[0]  # sentences follow
    assert_whole(text, [row for table in sweep_tables(sweep_result) for row in table.rows], width)


@pytest.fixture
def ablation() -> AblationResult:
    labels = ("keep=0.25 advantage=bi_level_gae clip_high=0.28", "keep=0.5")
    difference = MatchedDifference(
        mean=0.125, low=-0.0625, high=0.25, per_seed=dict.fromkeys(range(6), 0.25), num_prompts=8
    )
    panel = PanelResult(
        first=0.25, last=0.5, last_iteration=4, peak=0.75, peak_iteration=200,
        difference=difference, curve={0: 0.25}, seed_curves={0: {0: 0.25}},
    )  # fmt: skip
    runs = {seed: f"run-{seed}" for seed in range(6)}
    cells = [
        CellResult(label=label, values={}, is_base=False, runs=runs, errors={}, panels={"sokoban": panel})
        for label in labels
    ]
    grid = {"name": "mine", "preset": "smoke", "axes": {"filter.keep": [0.25, 0.5]}, "seeds": list(range(6))}
    return AblationResult(name="mine", grid=grid, panel="sokoban", cells=cells)


@WIDTHS
def test_an_ablation_is_whole(ablation, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(Ablations, "get", lambda *_: ablation)
    print_result(Ablations("store"), "mine", as_json=False)
    text = capsys.readouterr().out.partition("Difference: ")[0]  # sentences follow
    assert_whole(text, ablation_tables(ablation)[0].rows, width)
    assert text.split().count("+0.250") == 2 * 6  # one per cell and seed
    assert text.split().count("difference") == 1


@pytest.fixture
def store(tmp_path: Path) -> str:
    """URL of a store whose run has a long name and an iteration of 48 groups, half of which are kept."""
    store = Store(str(tmp_path / "s"))
    turns = example_turns(num_groups=48)
    rewards = compute_rewards(turns, RewardConfig())
    config = FilterConfig(keep=0.5, should_drop_zero_variance=False)
    selection = select_groups(turns, rewards, config)
    store.runs.create(LONG, flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    for name, kind, table in (("rollout", "turns", turns), ("variance_filter", "selection", selection)):
        stage = Stage(name=name, version=1)
        key = stage_key(stage, {}, {}, 0)
        store.put_table(kind, table, Facts(key=key, stage=stage, settings={}, inputs={}, seed=0))
        store.runs.record_stage(LONG, 0, name, {kind: key})
    store.runs.set_state(LONG, "completed", "", {})
    return store.url


def ragen(width: int, *arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


@pytest.mark.ci
@WIDTHS
@pytest.mark.parametrize(
    "command",
    [
        ("sql", LONG, "select * from turns limit 3"),
        ("sql", LONG, "select trajectory_id, observation, response, reason from turns, selection limit 3"),
        ("runs",),
        ("presets",),
        ("envs",),
        ("ablate", "--list"),
    ],
    ids=" ".join,
)
def test_listings_are_whole(command, width, store, monkeypatch):
    monkeypatch.setenv("STARPO_STORE", store)
    rows = json.loads(ragen(width, *command, "--json"))
    if command == ("runs",):  # these are quick to read; --json has more
        rows = [{name: row[name] for name in ("run", "state", "updates")} for row in rows]
    if command == ("envs",):  # nothing was checked
        rows = [{name: row[name] for name in ("name", "type", "about")} for row in rows]
    assert_whole(ragen(width, *command), rows, width)


@WIDTHS
def test_shared_reason_is_shown_once(width, store):
    text = " ".join(ragen(width, "show", LONG, "--iteration", "0", "--store", store).split())
    groups = json.loads(ragen(width, "show", LONG, "--iteration", "0", "--store", store, "--json"))["groups"]
    assert len(groups) == 48
    assert all(group["group_id"] in text for group in groups)
    assert text.count("top_fraction with keep = 0.5 keeps 24 of 48 groups") == 2
    assert "24 groups kept: number 1 to 24 of 48 by std" in text
    assert "24 groups dropped: number 25 to 48 of 48 by std" in text
