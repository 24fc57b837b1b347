"""`starpo ablate` without a server: lists, plans, stored results, and errors raised before any work."""

import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from starpo.flows.ablation_plan import plan_ablation
from starpo.flows.cli.ablate import _looking_at, ablate
from starpo.flows.cli.validate import validate
from starpo.flows.console.follow import RunFailedError
from starpo.flows.console.studies import run_study
from starpo.flows.outcome import Outcome
from starpo.flows.presets import GRIDS, preset
from starpo.ragen.core.errors import ConfigError, StarPOError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.studies.ablation import AblationResult, CellResult, MatchedDifference, PanelResult
from starpo.ragen.studies.finish import CellsFailedError
from starpo.ragen.studies.grid import Grid
from starpo.ragen.studies.studies import Ablations
from starpo.ragen.studies.tables import ablation_tables

SMALL = 'preset = "smoke"\nseeds = [0, 1, 2]\n[axes]\nfilter.keep = [0.5, 1.0]\n'


@pytest.fixture(autouse=True)
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")  # the port at which nothing listens


@pytest.fixture
def grid_file(tmp_path: Path):
    """`grid_file(text)` writes `mine.toml` and returns its path as a user types it."""

    def write(text: str = SMALL) -> str:
        (tmp_path / "mine.toml").write_text(text)
        return str(tmp_path / "mine.toml")

    return write


@pytest.mark.ci
@pytest.mark.parametrize("name", GRIDS.names())
def test_shipped_grids_are_valid_and_described(name: str, store: Store) -> None:
    study = plan_ablation(Grid.load(GRIDS.path(name)), store)
    assert study.grid.name == name
    assert len(study.cells) > 1
    assert GRIDS.description(name)
    assert len({run.name for run in study.runs}) == len(study.runs)
    given = study.grid.model_dump(mode="json", exclude_defaults=True)  # as the deployment takes it
    assert Grid.model_validate(given) == study.grid


@pytest.mark.parametrize(
    ("figure", "cells"),
    [
        ("fig-5-bandit", {"GRPO": "vanilla", "PPO": "critic"}),
        ("fig-7-bandit", {"100%": "vanilla", "25%": "filter 25%"}),
        ("fig-8-bandit", {"KL": "KL", "no KL": "vanilla", "no KL, clip-higher": "clip-higher"}),
        ("fig-10-bandit", {"k = 1": "fresh rollouts", "k = 5": "vanilla"}),
    ],
)
def test_figures_share_cells_of_experiment(figure: str, cells: dict[str, str], store: Store) -> None:
    """Equal settings have equal keys: what fig-9-bandit has trained is not trained again."""
    whole = {cell.label: cell.config for cell in plan_ablation(Grid.load(GRIDS.path("fig-9-bandit")), store).cells}
    cells_of_figure = {cell.label: cell.config for cell in plan_ablation(Grid.load(GRIDS.path(figure)), store).cells}
    for label, counterpart in cells.items():
        assert cells_of_figure[label] == whole[counterpart]


def test_cell_runs_differ_by_seed_only(grid_file, store: Store) -> None:
    study = plan_ablation(Grid.load(Path(grid_file())), store)
    assert [(run.cell.label, run.seed) for run in study.runs[:3]] == [("keep=0.5", 0), ("keep=1.0", 0), ("keep=0.5", 1)]
    first, again = study.runs[0], study.runs[2]
    assert first.config == again.config.model_copy(update={"seed": 0})
    assert first.name.startswith("mine.keep-0.5-s0-")


def test_renamed_finished_run_is_not_repeated(grid_file, store: Store) -> None:
    grid = Grid.load(Path(grid_file()))
    first_run, other, *_ = plan_ablation(grid, store).runs
    name = first_run.name.replace("mine.", "another.")
    store.runs.create(name, flow="starpo", preset="another", config=first_run.config.model_dump(mode="json"))
    assert plan_ablation(grid, store).runs[0].name == first_run.name  # the other one is not finished
    store.runs.set_state(name, "completed")
    first, second, *_ = plan_ablation(grid, store).runs
    assert (first.name, second.name) == (name, other.name)
    store.runs.create(first_run.name, flow="starpo", preset="mine", config=first_run.config.model_dump(mode="json"))
    assert plan_ablation(grid, store).runs[0].name == first_run.name


def test_cell_ignores_run_with_other_settings(grid_file, store: Store) -> None:
    grid = Grid.load(Path(grid_file()))
    first_run, other, *_ = plan_ablation(grid, store).runs
    name = first_run.name.replace("mine.", "another.")
    store.runs.create(name, flow="starpo", preset="another", config=other.config.model_dump(mode="json"))
    store.runs.set_state(name, "completed")
    assert plan_ablation(grid, store).runs[0].name == first_run.name


def test_rolled_back_run_follows_fork(grid_file, store: Store) -> None:
    plan = plan_ablation(Grid.load(Path(grid_file())), store)
    name = plan.runs[0].name
    fork, look = f"{name}-rollback-3", _looking_at(store, plan)
    for run in (name, fork):
        store.runs.create(run, flow="starpo", preset="mine", config={})
    store.runs.set_state(name, "failed", "CollapsedError: it goes on", {"iteration": 5, "iterations": 9})
    store.runs.set_state(fork, "running", "update", {"iteration": 4, "iterations": 9})
    assert look() == ({}, f"{name}: iteration 4/9")
    store.runs.set_state(fork, "completed")
    assert look() == ({name: "completed"}, "no active run")


def test_dry_run_counts_stages_without_writing(grid_file, store: Store, capsys, tmp_path: Path) -> None:
    ablate(grid_file(), dry_run=True, store=store.url, as_json=True)
    plan = json.loads(capsys.readouterr().out)
    # Each of 6 runs has 15 stages. The seeds share warm start and first evaluation; the two cells of a seed share the
    # first rollout, probe and reward too. So 2 + 3 * (3 + 2 * 10) are distinct.
    assert [row["stages"] for row in plan["runs"]] == [15] * 6
    assert (plan["stages"], plan["stored"], plan["new"]) == (71, 0, 71)
    assert sum(row["new"] for row in plan["runs"]) == 71
    assert plan["new_by_stage"]["warm_start"] == 1
    assert plan["decided_by_data"] == [{"metric": "filter/num_kept", "runs": 6, "first_iteration": 0}]
    assert not (tmp_path / "store").exists()


def test_the_list_names_grids_and_results(store: Store, capsys) -> None:
    Ablations(store.url).save(RESULT)
    ablate(list_=True, store=store.url, as_json=True)
    rows = {row["grid"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(GRIDS.names()) <= set(rows)
    assert rows["mine"]["result"]
    assert not rows["filter-keep"]["result"]
    assert "bandit" in rows["filter-keep"]["about"]


def refused(store: Store, path: str) -> str:
    with pytest.raises(ConfigError) as caught:
        ablate(path, dry_run=True, store=store.url)
    return str(caught.value)


def test_an_unknown_preset_suggests_near_ones(grid_file, store: Store) -> None:
    message = refused(store, grid_file(SMALL.replace("smoke", "smok")))
    assert "mine.toml: preset = 'smok'" in message
    assert "did you mean 'smoke'" in message


def test_an_unknown_run_suggests_near_ones(grid_file, store: Store) -> None:
    store.runs.create("smoke-mine", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    message = refused(store, grid_file(SMALL.replace('preset = "smoke"', 'run = "smoke-mime"')))
    assert "mine.toml: run = 'smoke-mime'" in message
    assert "did you mean smoke-mine" in message


def test_what_stands_in_way_of_cell(grid_file, store: Store) -> None:
    text = SMALL.partition("[axes]")[0] + '[cells.own.policy]\ntype = "pretrained"\nname_or_path = "absent"\n'
    file = grid_file(text)
    assert f"{file}: cell 'own': policy.name_or_path = 'absent': there is no such folder" in refused(store, file)


def test_other_run_kind_is_no_base(grid_file, store: Store) -> None:
    store.runs.create("other", flow="starpo", preset=None, config={"iterations": 3})
    message = refused(store, grid_file(SMALL.replace('preset = "smoke"', 'run = "other"')))
    assert "environment is missing" in message


def test_run_or_file_can_be_base(grid_file, store: Store, tmp_path: Path) -> None:
    config = preset("smoke", {"iterations": 7})
    store.runs.create("mine", flow="starpo", preset="smoke", config=config.model_dump(mode="json"))
    of_run = plan_ablation(Grid.load(Path(grid_file(SMALL.replace('preset = "smoke"', 'run = "mine"')))), store)
    assert of_run.cells[0].config.iterations == 7
    (tmp_path / "own.toml").write_text('extends = ["smoke"]\niterations = 8')
    grid = Grid.load(Path(grid_file(SMALL.replace('"smoke"', '"own.toml"'))))
    assert plan_ablation(grid, store, folder=tmp_path).cells[0].config.iterations == 8


def test_unwritable_store_refused_before_work(grid_file, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("starpo.flows.console.studies.start_deployment", lambda *_: pytest.fail("work began"))
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "ablations").write_text("a file where a folder should be")
    with pytest.raises(StarPOError, match=r"cannot write .*ablations/mine"):
        ablate(grid_file(), store=str(folder))
    with pytest.raises(StarPOError, match=r"cannot list .*ablations/runs"):
        ablate(grid_file(), store=str(folder / "ablations"))


CURVE = {0: 0.25, 4: 0.5}
PANEL = PanelResult(
    first=0.25, last=0.5, last_iteration=4, peak=0.75, peak_iteration=2, difference=None,
    curve=CURVE, seed_curves={0: CURVE},
)  # fmt: skip
DIFFERENCE = MatchedDifference(mean=0.125, low=-0.0625, high=0.25, per_seed={0: 0.0, 2: 0.25}, num_prompts=8)
RESULT = AblationResult(
    name="mine",
    grid={"name": "mine", "preset": "smoke", "axes": {"filter.keep": [0.5, 1.0]}, "seeds": [0, 1, 2]},  # type: ignore[arg-type]
    panel="sokoban",
    cells=[
        CellResult(
            label="keep=0.5", values={}, is_base=True, runs={0: "a0", 1: "a1", 2: "a2"}, errors={},
            panels={"sokoban": PANEL},
        ),
        CellResult(
            label="keep=1.0", values={}, is_base=False, runs={0: "b0", 1: "b1", 2: "b2"},
            errors={1: "NothingKeptError: a | b\n<script>"},
            panels={"sokoban": PANEL.model_copy(update={"difference": DIFFERENCE})},
        ),
    ],
)  # fmt: skip


def test_rows_show_last_beside_peak() -> None:
    ((title, (base, cell), _),) = ablation_tables(RESULT)
    assert title == "success on sokoban; last: at iteration 4"
    assert base["difference [95%], and by seed"] == "base"
    assert cell == {
        "cell": "keep=1.0", "seeds": "2/3", "first": "0.250", "last": "0.500", "peak": "0.750 at 2",
        "difference [95%], and by seed": "+0.125 [-0.062, +0.250]\n+0.000 +0.250",
    }  # fmt: skip


def test_stored_result_shows_failures_and_warnings(store: Store, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    Ablations(store.url).save(RESULT)
    ablate("mine", result=True, store=store.url)
    output = " ".join(capsys.readouterr().out.split())
    assert "failed: b1: NothingKeptError" in output
    assert "a peak is the luckiest of many" in output
    assert "10,000 resamples" in output
    ablate("mine", result=True, store=store.url, as_json=True)
    assert json.loads(capsys.readouterr().out)["cells"][1]["errors"] == {"1": "NothingKeptError: a | b\n<script>"}


def test_result_found_by_grid_file(grid_file, store: Store, capsys) -> None:
    Ablations(store.url).save(RESULT.model_copy(update={"name": "named"}))
    ablate(grid_file('name = "named"\n' + SMALL), result=True, store=store.url, as_json=True)
    assert json.loads(capsys.readouterr().out)["name"] == "named"
    ablate("named", result=True, store=store.url, as_json=True)
    assert json.loads(capsys.readouterr().out)["name"] == "named"


def test_neither_result_nor_file_one_message(grid_file, store: Store) -> None:
    Ablations(store.url).save(RESULT)
    for given in ("here/mine.toml", "mime"):
        with pytest.raises(
            ConfigError, match=rf"^'{given}' is neither the name of a result nor a TOML file.*names: mine"
        ):
            ablate(given, result=True, store=store.url, as_json=False)
    with pytest.raises(StoreError, match="no result of an ablation 'other'"):
        ablate(grid_file('name = "other"\n' + SMALL), result=True, store=store.url, as_json=False)


@pytest.mark.parametrize("is_stored_before", [False, True])
def test_stored_result_ends_command_without_prefect(
    grid_file, store: Store, monkeypatch, capsys, is_stored_before: bool
) -> None:
    plan = plan_ablation(Grid.load(Path(grid_file())), store)
    studies = Ablations(store.url)
    if is_stored_before:
        studies.save(RESULT.model_copy(update={"cells": RESULT.cells[:1]}))
    ends = [RESULT]

    def ended() -> None:  # Prefect: unfinished, for ever
        if ends:
            studies.save(ends.pop())

    monkeypatch.setattr("starpo.flows.console.studies.start_deployment", lambda *_: ended)
    monkeypatch.setattr("starpo.flows.console.studies.SILENCE_S", 0.2)
    monkeypatch.setattr("starpo.flows.console.studies.POLL_S", 0.05)
    monkeypatch.setattr("starpo.flows.console.studies.PLAIN_EVERY_S", 0.05)
    with pytest.raises(CellsFailedError, match=r"^1 failed, as the result says\. This is what the store says"):
        run_study(studies, plan, plan.grid, "ablation/custom", {}, lambda: ({}, "no active run"), as_json=False)
    shown = capsys.readouterr().out
    assert "0 of 6 · no active run\n" in shown
    assert "failed: b1: NothingKeptError" in shown


def test_cancelled_ablation_can_be_continued(grid_file, store: Store, monkeypatch) -> None:
    plan = plan_ablation(Grid.load(Path(grid_file())), store)
    end = Outcome("cancelled", "Flow run was cancelled successfully.")  # what Prefect's server answers
    monkeypatch.setattr("starpo.flows.console.studies.start_deployment", lambda *_: lambda: end)
    with pytest.raises(RunFailedError, match=r"^ablation \w+ was cancelled; the same command continues it$"):
        run_study(Ablations(store.url), plan, plan.grid, "ablation/custom", {}, lambda: ({}, ""), as_json=False)


def test_ablation_at_work_is_followed(grid_file, store: Store, monkeypatch, capsys) -> None:
    plan = plan_ablation(Grid.load(Path(grid_file())), store)
    studies, failed = Ablations(store.url), Outcome("failed", "for a reason")
    started, at_work = [], SimpleNamespace(page="http://page", ended=lambda: failed)
    monkeypatch.setattr(
        "starpo.flows.console.studies.start_deployment", lambda *given: started.append(given) or (lambda: failed)
    )

    def run(grid: Grid) -> str:
        with pytest.raises(RunFailedError) as refused:
            run_study(studies, plan, grid, "ablation/custom", {}, lambda: ({}, ""), as_json=False)
        return str(refused.value)

    assert run(plan.grid) == "for a reason"
    assert len(started) == 1
    monkeypatch.setattr("starpo.flows.console.studies._at_work", lambda *_: at_work)
    assert run(plan.grid) == "for a reason"
    assert "is at work already: http://page" in capsys.readouterr().out
    assert re.match(
        r"another ablation of the name .* with other settings",
        run(Grid.load(Path(grid_file(SMALL.replace("0.5", "0.75"))))),
    )
    assert len(started) == 1


def test_shown_command_reads_settings_from_file(grid_file, store: Store, monkeypatch, tmp_path: Path, capsys) -> None:
    (tmp_path / "base.toml").write_text('extends = ["smoke"]\niterations = 7\n')
    path, started = grid_file(SMALL.replace('"smoke"', '"base.toml"')), []
    cancelled = Outcome("cancelled", "")
    monkeypatch.setattr(
        "starpo.flows.console.studies.start_deployment", lambda *given: started.append(given) or (lambda: cancelled)
    )
    with pytest.raises(RunFailedError):
        ablate(path, store=store.url, as_json=False)
    (_, parameters, _, _, written), = started  # fmt: skip
    command = re.fullmatch(r'config="\$\((.+)\)"', written["config"])
    assert command is not None
    assert shlex.split(command[1]) == ["starpo", "validate", str(tmp_path / "base.toml"), "--settings"]
    capsys.readouterr()
    validate(str(tmp_path / "base.toml"), settings=True)
    assert json.loads(capsys.readouterr().out) == parameters["config"]
    assert parameters["config"]["iterations"] == 7
