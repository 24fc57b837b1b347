"""The notebooks of docs/notebooks: what they store is from one whole run, and they run."""

import os
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="pip install 'starpo[docs]'")
nbclient = pytest.importorskip("nbclient", reason="pip install 'starpo[docs]'")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def code_cells(path: Path) -> list[Any]:
    """Return the cells with code of a notebook that is valid."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_of_one_run(path: Path) -> None:
    """From the first cell to the last, none left out or repeated, none failed; `make notebooks` writes them so."""
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert not any(folder in str(output) for output in outputs for folder in ("/home/", "/root/", "site-packages"))


@pytest.mark.parametrize(("folder", "source"), [("docs/notebooks", "../.."), ("docs", "starpo")])
def test_first_cell_installs_what_lacks(folder: str, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the clone around it, elsewhere from PyPI; and nothing where the package is there."""
    from IPython.core.interactiveshell import InteractiveShell

    [cell] = {code_cells(path)[0].source for path in NOTEBOOKS}
    lines: list[str] = []
    shell = InteractiveShell()
    shell.register_magic_function(lines.append, "line", "pip")
    monkeypatch.chdir(ROOT / folder)
    assert shell.run_cell(cell).success
    assert lines == []
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda _: None)
        assert shell.run_cell(cell).success
    assert lines == [f"install -q {source}"]


def run(notebook: Any, folder: Path) -> None:
    """Run a notebook in a folder, whose kernel imports this checkout and has its store there.

    No cell has a time limit: the test has one.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STARPO_STORE")}
    client = nbclient.NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(folder)}})
    client.execute(env=environment | {"PYTHONPATH": str(ROOT), "STARPO_WANDB_MODE": "disabled"})


def test_notebook_may_query(tmp_path: Path) -> None:
    """In a kernel, DuckDB refuses to set its progress bar where ipywidgets is not installed."""
    source = "from starpo.ragen.evidence.audit.database import described_views\nlen(described_views())"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    run(notebook, tmp_path)
    assert int(notebook.cells[0].outputs[-1].data["text/plain"]) > 5


@pytest.mark.ci
@pytest.mark.timeout(3600)  # a cell has taken 20 minutes on busy cores, all three together two minutes on idle ones
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_from_nothing(path: Path, tmp_path: Path) -> None:
    """In an empty folder, hence with an empty store; a cell that fails ends it."""
    notebook = nbformat.read(path, as_version=4)
    run(notebook, tmp_path)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert list((tmp_path / "var" / "store" / "checkpoint").iterdir())
