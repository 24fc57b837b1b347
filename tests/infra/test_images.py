"""The images: sound Dockerfiles with consistent versions, and with what their scripts need and nothing else."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted((ROOT / "infra/images").glob("*.Dockerfile"))
NAMES = [path.name for path in DOCKERFILES]


def _hadolint() -> str:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed: pip install 'starpo[test]'")
    return program


@pytest.mark.parametrize("path", DOCKERFILES, ids=NAMES)
def test_hadolint_finds_nothing(path: Path) -> None:
    done = subprocess.run([_hadolint(), "--no-color", path], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", DOCKERFILES, ids=NAMES)
def test_torch_first_at_tested_version(path: Path) -> None:
    text = path.read_text()
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert re.findall(r"^ARG TORCH=(\S+)$", text, re.MULTILINE) == [pinned["torch"]]
    installs = re.findall(r"pip install .*", text)
    assert '"torch==${TORCH}"' in installs[0]
    assert "torch" not in installs[1]


@pytest.mark.parametrize("path", DOCKERFILES, ids=NAMES)
def test_extras_and_copied_files_exist(path: Path) -> None:
    text = path.read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    for sources in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        assert all((ROOT / source).exists() for source in sources.split())
    assert f"-t starpo:{project['version']}-{path.stem}" in text


@pytest.mark.parametrize("path", DOCKERFILES, ids=NAMES)
def test_image_has_numbered_user_and_healthcheck(path: Path) -> None:
    text = path.read_text()
    (uid,) = re.findall(r"useradd --uid (\d+)", text)
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == [uid]  # Kubernetes cannot verify that a name is not root
    assert re.search(r'^HEALTHCHECK .* CMD \["/app/infra/images/start", "health"\]$', text, re.MULTILINE)
    assert 'ENTRYPOINT ["tini", "--", "/app/infra/images/start"]' in text


def test_vllm_where_pipeline_expects_it() -> None:
    text = (ROOT / "infra/images/gpu.Dockerfile").read_text()
    tested = re.findall(r"vllm==([\d.]+)", (ROOT / "infra/vllm/make-env").read_text())[0]
    assert f"ARG VLLM=vllm=={tested}" in text
    assert "infra/vllm/make-env .venv-vllm" in text
    assert '".venv-vllm"' in (ROOT / "ragen/config/vllm_engine.py").read_text()


def test_context_holds_only_runtime_files() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    find = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    packages = {name.rstrip("*") for name in find["include"]}
    assert packages == {"starpo"}
    packages |= {path.name for path in (ROOT / "starpo").iterdir() if path.is_symlink()}
    assert packages <= let_in
    assert let_in <= packages | {
        "infra", "pyproject.toml", "constraints.txt", "prefect.toml", "prefect.yaml", "README.md", "LICENSE"
    }  # fmt: skip
    assert all((ROOT / name).exists() for name in let_in)
    assert "**/.env" in lines[max(i for i, line in enumerate(lines) if line.startswith("!")) :]
