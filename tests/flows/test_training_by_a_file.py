"""`starpo train FILE.toml`: a user's own settings, through the deployment that takes any settings."""

from types import SimpleNamespace
from uuid import uuid4

import pytest

from starpo.flows.cli.train import train
from starpo.flows.console import deployment
from starpo.flows.deployments import deployments
from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.tasks.loop.run_code import default_run_name

SETTINGS = """
extends = ["smoke"]
iterations = 3

[filter]
keep = 0.25
"""


@pytest.fixture
def started(monkeypatch):
    """[deployment, parameters, followed run] of every start; nothing is executed, but the run is created."""
    starts = []

    def follow(store, run, *_):
        starts[-1].append(run)
        if run not in store.runs.names():
            store.runs.create(run, flow="starpo", preset=None, config={})
        return run

    monkeypatch.setattr("starpo.flows.server.start", lambda *_: "http://127.0.0.1:1/api")
    monkeypatch.setattr("starpo.flows.server.served_environment", lambda *_: None)
    monkeypatch.setattr(deployment, "register", lambda *_: None)
    monkeypatch.setattr(
        "prefect.deployments.run_deployment",
        lambda name, parameters, **_: starts.append([name, parameters]) or SimpleNamespace(id=uuid4()),
    )
    monkeypatch.setattr(deployment, "follow_run", follow)
    monkeypatch.setattr("starpo.flows.console.conclusion.write_report", lambda *_: "report.html")
    monkeypatch.setattr("starpo.flows.console.conclusion.success_line", lambda *_: "")
    return starts


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "mine.toml"
    made.write_text(SETTINGS)
    return made


def begin(name, tmp_path, **options):
    train(str(name), store=str(tmp_path / "store"), **options)


def test_file_settings_become_parameter_and_name(file, tmp_path, started, capsys):
    begin(file, tmp_path, set_=["filter.keep=0.5"], seed=7)
    ((deployment, parameters, run),) = started
    assert deployment == "starpo/custom"
    assert parameters["config"] == preset(str(file)).model_dump(mode="json")
    assert parameters["config"]["filter"]["keep"] == 0.25
    assert (parameters["preset"], parameters["overrides"], parameters["seed"]) == ("mine", {"filter.keep": 0.5}, 7)
    assert run == default_run_name("mine", preset(str(file), {"filter.keep": 0.5, "seed": 7}))
    shown = capsys.readouterr().out
    assert f'$ prefect deployment run starpo/custom -p config="$(starpo validate {file} --settings)" -p' in shown


def test_a_preset_has_its_own_deployment(tmp_path, started):
    begin("smoke", tmp_path)
    ((deployment, parameters, _),) = started
    assert (deployment, sorted(parameters)) == ("starpo/smoke", ["store"])


def test_deployment_has_no_settings():
    (made,) = [made for made in deployments() if (made.flow.name, made.name) == ("starpo", "custom")]
    assert made.to_runner().parameters == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [("smokee", "'smokee' is neither a preset nor a TOML file.*smoke"), ("nowhere.toml", "nowhere.toml: no such file")],
)
def test_neither_preset_nor_file_one_message(name, message, tmp_path, started):
    with pytest.raises(ConfigError, match=f"^{message}"):
        begin(name, tmp_path)
    assert started == []


def test_wrong_setting_stops_before_start(file, tmp_path, started):
    file.write_text(SETTINGS.replace("keep", "keeep"))
    with pytest.raises(ConfigError, match="keeep"):
        begin(file, tmp_path)
    assert started == []


def test_unusable_file_name_needs_run_name(file, tmp_path, started):
    odd = file.rename(tmp_path / "my settings.toml")
    with pytest.raises(StoreError, match=r"'my settings-s0-.*cannot be a run"):
        begin(odd, tmp_path)
    assert started == []
    begin(odd, tmp_path, run="mine")
    assert started[0][2] == "mine"
