"""Files that the host of the repository reads: workflows, issue forms, the citation."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SCHEMAS = {
    ".github/workflows/ci.yml": "vendor.github-workflows",
    ".github/workflows/release.yml": "vendor.github-workflows",
    ".github/workflows/site.yml": "vendor.github-workflows",
    ".github/ISSUE_TEMPLATE/fault.yml": "vendor.github-issue-forms",
    ".github/ISSUE_TEMPLATE/wish.yml": "vendor.github-issue-forms",
    "CITATION.cff": "vendor.citation-file-format",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_file_fits_its_schema(name: str) -> None:
    pytest.importorskip("check_jsonschema", reason="pip install 'starpo[test]'")
    command = [sys.executable, "-m", "check_jsonschema", "--default-filetype", "yaml", "--builtin-schema"]
    checked = subprocess.run([*command, SCHEMAS[name], str(ROOT / name)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_workflows_try_oldest_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    for name, job in (("ci", "linux"), ("release", "try")):
        workflow = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())
        assert workflow["jobs"][job]["strategy"]["matrix"]["python"][0] == oldest
