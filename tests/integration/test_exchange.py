"""A trained run is exported, and imported again as the same rows."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.store import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RUN = "mine"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, prefect_server: None) -> Path:
    folder = tmp_path_factory.mktemp("exchange") / "store"
    starpo(preset("smoke", {"iterations": 1}), preset="smoke", store=str(folder), run=RUN)
    return folder


def ragen(store: Path, *arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--store", str(store)])
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def test_atif_comes_back_as_the_same_rows(finished: Path, tmp_path: Path) -> None:
    ragen(finished, "export", RUN, "--format", "atif", "-o", str(tmp_path / "out"))
    folder = str(tmp_path / "out" / "iteration-00000")
    ragen(finished, "import", "again", folder, "--format", "atif", "--preset", "smoke")
    store = Store(str(finished))
    keys = [store.runs.iteration(run, 0)["rollout"]["turns"] for run in (RUN, "again")]
    mine, again = (store.read_table("turns", key) for key in keys)
    assert again.equals(mine)
    assert store.manifest("turns", keys[0]).content_digest == store.manifest("turns", keys[1]).content_digest
