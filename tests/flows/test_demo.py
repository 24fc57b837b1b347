"""`starpo demo`: its preset, what it prints before and after, and where it leads."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from starpo.flows.cli import demo as command
from starpo.flows.console.before_after import print_before_after
from starpo.flows.console.terminal import Console
from starpo.flows.presets import preset
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from tests.examples import example
from tests.flows.command import ragen

STAGE = Stage(name="evaluate", version=1)


def evaluated(store: Store, iteration: int, episodes: pa.Table) -> None:
    settings = {"iteration": iteration}
    key = stage_key(STAGE, settings, {}, 0)
    store.put_table("episodes", episodes, Facts(key=key, stage=STAGE, settings=settings, inputs={}, seed=0))
    store.runs.record_stage("mine", iteration, "evaluate:bandit", {"episodes": key})


def test_changed_states_are_counted_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, table = Store(str(tmp_path)), example("episodes")
    store.runs.create("mine", flow="starpo", preset="demo", config=preset("demo").model_dump(mode="json"))
    rows = [{**table.to_pylist()[0], "env_seed": seed, "observations": [f"state {seed}"]} for seed in range(4)]
    for iteration, won in ((0, {0}), (12, {1, 2})):
        episodes = [
            {**row, "success": row["env_seed"] in won, "responses": [f"at {iteration} of {row['env_seed']}"]}
            for row in rows
        ]
        evaluated(store, iteration, pa.Table.from_pylist(episodes, table.schema))
    print_before_after(store, "mine", Console())
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "of 4 initial states, 2 were lost before and are won now, 1 the other way"
    assert [line.split(maxsplit=1)[1] for line in lines[2:]] == ["at 0 of 1", "at 12 of 1"]
    assert "state 1" in lines[1]


def test_commands_to_go_on_with_exist() -> None:
    for line in command._NEXT:
        name = re.fullmatch(r"starpo (\w+).*", line)
        assert name is not None
        assert ragen(name[1], "--help").returncode == 0


@pytest.mark.thorough
def test_demo_learns_and_leads_on(tmp_path: Path) -> None:
    done = ragen("demo", "--store", str(tmp_path / "store"), STARPO_STATE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    success = re.search(r"^success +(\S+) .*-> (\S+) ", done.stdout, re.MULTILINE)
    assert success is not None
    assert float(success[2]) > float(success[1]) + 0.3
    run = Store(str(tmp_path / "store")).runs.names()[0]
    assert f"starpo view {run} --store {tmp_path / 'store'}" in done.stdout
    assert (tmp_path / "reports" / f"{run}.html").is_file()
