"""`starpo new agent`: the files that it writes are recorded and can be trained on as they are."""

import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.flows.cli.new import _PACKAGES
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store import Store

FILES = ("agent.py", "tasks.py", "reward.py", "agent.toml")


@pytest.fixture
def written(tmp_path, monkeypatch) -> Path:
    """The files of an agent, as the working folder."""
    for name in ("agent", "tasks", "reward"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def ragen(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    if result.exception:
        raise result.exception
    return result.stdout


@pytest.mark.parametrize("framework", _PACKAGES)
def test_new_agent_has_files_and_commands(written, framework):
    output = ragen("new", "agent", "--framework", framework)
    assert [line for line in output.splitlines() if line.startswith("wrote")] == [f"wrote {name}" for name in FILES]
    for name in FILES[:3]:
        compile((written / name).read_text(), name, "exec")
    with pytest.raises(ConfigError, match="already exists"):
        ragen("new", "agent", "--framework", framework)


@pytest.mark.ci
def test_suggested_command_records_trainable_agent(written, store):
    output = ragen("new", "agent", "--framework", "openai")
    record = next(line for line in output.splitlines() if line.strip().startswith("starpo record"))
    words = ["8" if word == "800" else word for word in shlex.split(record)[1:]]
    assert "8 episodes" in ragen(*words[:-2], "--store", store.url, *words[-2:])
    stages = store.runs.iterations("demos")[0]
    turns = store.read_table("turns", stages["rollout"]["turns"])
    assert set(turns["status"].to_pylist()) == {"ok"}
    assert any("look" in text for text in turns["response"].to_pylist())
    assert "agent.toml: valid" in ragen("validate", "agent.toml", "--store", store.url)
    assert Store(store.url).runs.names() == ("demos",)
