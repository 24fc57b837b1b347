"""docs/python.md, followed to the letter: the built wheel in its own environment, an empty folder, no server."""

import importlib
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "python.md").read_text()
INSTALL = "pip install starpo"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CALLED = re.compile(r"`(starpo\.(?:flows|ragen)[\w.]+)")
KEPT = ("LANG", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TMPDIR", "STARPO_WANDB_MODE")
MODULES = """
import sys
modules = [name for name in ("prefect", "ray", "vllm") if name in sys.modules]
"""
FACTS = """
import json
print(json.dumps({
    "modules": modules,
    "file": starpo.__file__,
    "curve": curve.to_dict(as_series=False),
    "turns": turns.num_rows,
    "lengths": sorted(set(lengths["iteration"].to_pylist())),
    "by_length": by_length.schema.names,
    "runs": runs.num_rows,
    "greedy": greedy["evaluation/sokoban/success"],
    "solved": sorted(set(easy["group_id"].to_pylist())),
    "reply": reply.shape[1] - ids.shape[1],
    "fork": [fork.name != run.name, fork.iterations],
    "folder": sorted(path.name for path in folder.iterdir()),
    "page": page.name,
}))
"""

pytestmark = pytest.mark.timeout(600)


def test_page_leads_from_import_to_run(installed: Path, tmp_path: Path, begun: Callable[..., str]) -> None:
    """The first checkpoint is there; `test_extend_docs.py` has the wheel make one."""
    work = tmp_path / "work"
    begun(work / "var" / "store")
    env = {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "HOME": str(tmp_path),
        "PREFECT_API_URL": "http://127.0.0.1:1/api",  # nobody answers there
    }
    script = work / "page.py"
    *stable, verify = BLOCK.findall(PAGE)
    script.write_text("\n".join([*stable, MODULES, verify, FACTS]))
    ended = subprocess.run(
        [f"{installed}/bin/python", script.name], cwd=work, env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    *shown, last = ended.stdout.splitlines()
    facts = json.loads(last)
    assert facts["modules"] == [], "a run in this process needs none of them"
    assert facts["file"].startswith(str(installed)), "not the wheel"
    assert facts["curve"]["iteration"] == [0, 1, 2]
    success = facts["curve"]["evaluation/sokoban/success"]
    assert all(0 <= value <= 1 for value in success)
    assert facts["curve"]["rollout/success_rate"][2] is None
    assert (facts["turns"] > 0, facts["lengths"]) == (True, [0, 1])
    assert (facts["by_length"], facts["runs"]) == (["iteration", "num_turns", "success"], 1)
    assert 0 <= facts["greedy"] <= 1
    assert facts["solved"] == ["g0000", "g0001"]
    assert 0 < facts["reply"] <= 48
    assert facts["fork"] == [True, [0, 1, 2]]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(facts["folder"])
    assert (work / "var" / "reports" / facts["page"]).is_file()
    assert any(line.startswith("iteration 2/2 panel success") for line in shown)
    assert any(line.startswith("Run('smoke-s3-") and line.endswith("completed") for line in shown)
    assert "0.5 (0, 1, 2)" in shown
    assert "verified" in shown
    assert any(line.startswith("table 'turns' has no column 'reponse' (did you mean 'response' or") for line in shown)


@pytest.mark.parametrize("name", sorted(set(CALLED.findall(PAGE))))
def test_functions_named_on_page_exist(name: str) -> None:
    module, _, function = name.rpartition(".")
    assert callable(getattr(importlib.import_module(module), function))
