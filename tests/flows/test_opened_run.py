"""`starpo` in scripts: what is wrong is one error that says what would be right; tables are those of the store."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import starpo
from starpo.ragen.core.errors import ArtifactDamagedError, ConfigError, QueryError, StoreError
from starpo.ragen.store import Store
from tests.examples import example


@pytest.fixture
def run(store: Store, make_run: Callable[..., object]) -> starpo.Run:
    """A run of two iterations, with example data."""
    make_run(store, "mine")
    return starpo.open_run("mine", store.url)


def test_importing_it_loads_nothing() -> None:
    code = (
        "import sys, starpo; print(*({'pyarrow', 'pydantic', 'numpy', 'torch', 'prefect', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
    assert {"train", "open_run", "Run"} <= set(dir(starpo))
    with pytest.raises(AttributeError, match="'trian'; it has Run, StarPOError"):
        _ = starpo.trian  # type: ignore[attr-defined]


@pytest.mark.ci
def test_table_equals_stored_stages(run: starpo.Run) -> None:
    turns, columns = example("turns"), ["trajectory_id", "turn", "response"]
    assert run.table("turns", 1, columns).to_pylist() == turns.select(columns).to_pylist()
    everything = run.table("turns", columns=["iteration", "turn"])
    assert everything["iteration"].to_pylist() == [0] * turns.num_rows + [1] * turns.num_rows
    assert run.sql("select count(*) as n from turns where iteration = 1").to_pylist() == [{"n": turns.num_rows}]
    assert run.table("artifacts", 1, ["stage"])["stage"].to_pylist().count("rollout") == 1
    assert run.iterations == (0, 1)
    assert run.state is not None
    assert run.state.status == "completed"


@pytest.mark.ci
def test_reused_data_marked_when_read_alone(run: starpo.Run) -> None:
    keys = run.store.runs.iteration("mine", 0)["rollout"]
    run.store.runs.record_stage("mine", 2, "rollout", keys)
    assert set(run.table("turns", 2, ["is_reused"])["is_reused"].to_pylist()) == {True}
    assert set(run.table("turns", 0, ["is_reused"])["is_reused"].to_pylist()) == {False}


def test_table_checked_without_reading_other_iterations(run: starpo.Run, nothing_verified_yet: None) -> None:
    key = run.store.runs.iteration("mine", 1)["rollout"]["turns"]
    (file,) = Path(run.store.url, "turns", key).glob("*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert run.table("turns", 0).num_rows
    with pytest.raises(ArtifactDamagedError, match="mine:1:rollout"):
        run.table("turns", 1)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda run: starpo.open_run("mnie", run.store.url), StoreError, "no run 'mnie' .*did you mean mine"),
        (lambda run: starpo.open_run("mine", ""), StoreError, "the store's address is empty"),
        (lambda run: run.table("turn"), ConfigError, "no table 'turn' .did you mean 'turns'"),
        (lambda run: run.table("turns", 7), ConfigError, "run mine has no iteration 7; it has 0 to 1"),
        (lambda run: run.table("turns", 1, ["reponse"]), ConfigError, "no column 'reponse' .did you mean 'response'"),
        (lambda run: run.sql("select a from turn"), QueryError, 'Did you mean "turns"'),
        (lambda run: run.sql("delete from turns"), QueryError, "refused"),
        (lambda run: starpo.sql("select 1", store=run.store.url), ConfigError, "name the runs"),
        (lambda run: starpo.sql("select 1", "your-*", store=run.store.url), StoreError, "no run matches 'your-"),
        (lambda run: run.trajectory(1, "g9"), ConfigError, "no trajectory 'g9'; it has"),
        (lambda run: run.checkpoint(9), ConfigError, "no checkpoint 9; it has 0 to 2"),
        (lambda run: run.checkpoint(0, output=run.store.url), ConfigError, "already exists"),
        (lambda run: run.settings, ConfigError, "mine"),
        (lambda run: run.evaluate(0, {"filter.keep": 1.0}), ConfigError, "override filter.keep"),
        (lambda run: run.report("page.txt"), ConfigError, "in .html"),
        (lambda run: starpo.train("smokee"), ConfigError, "neither a preset nor"),
        (lambda run: starpo.train("smoke", {"filter.kep": 1}), ConfigError, "did you mean 'keep'"),
        (lambda run: starpo.train("smoke", store=run.store.url, run="mine"), StoreError, "with other settings"),
        (lambda run: starpo.play("smoke", {"rollout.engine": "openai"}), ConfigError, "openai.base_url"),
    ],
)
def test_wrong_requests_are_one_error(
    ask: Callable[[starpo.Run], object], error: type[Exception], message: str, run: starpo.Run
) -> None:
    with pytest.raises(starpo.StarPOError, match=message) as caught:
        ask(run)
    assert isinstance(caught.value, error)


def test_runs_are_listed_from_the_newest(store: Store, make_run: Callable[..., object]) -> None:
    make_run(store, "first")
    make_run(store, "second")
    assert [run.name for run in starpo.runs(Path(store.url))] == ["second", "first"]
    with pytest.raises(StoreError, match="no store was found"):
        starpo.runs(Path(store.url, "nowhere"))


def test_server_called_outside_notebook_event_loop(tmp_path: Path, monkeypatch) -> None:
    def follow(_deployment: str, _parameters: dict, _store: Store, run: str, *_: object) -> str:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return run

    async def cell() -> starpo.Run:
        return starpo.train("smoke", store=str(tmp_path), run="mine", server=True, quiet=True)

    monkeypatch.setattr("starpo.flows.console.deployment.follow_deployment", follow)
    assert asyncio.run(cell()).name == "mine"
