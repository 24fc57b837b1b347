"""Names from installed packages and `module:attribute` work like built-in names; each error is one message."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.store import Facts, Store

PLUGIN = '''
from typing import Literal

import numpy as np

from starpo.ragen.envs.bandit.environment import Bandit, BanditSettings


class TwinSettings(BanditSettings):
    """A bandit under another name."""

    type: Literal["twin"] = "twin"


class Twin(Bandit):
    settings_type = TwinSettings


def bonus(turns, config):
    return np.full(turns.num_rows, 0.5)


def keep_first(scores, config):
    return np.arange(len(scores)) == 0


def signs(inputs):
    import torch
    from starpo.ragen.learning.objectives.estimates import AdvantageEstimate
    signs_B = torch.where(inputs.returns_B > 0, 1.0, -1.0).to(inputs.returns_B.dtype)
    return AdvantageEstimate(signs_B[:, None] * inputs.mask_BT, None, torch.zeros_like(signs_B))
'''


def install(folder: Path, name: str, entry_points: dict[str, dict[str, str]], source: str = PLUGIN) -> None:
    """Write the files that pip installs for a package with one module."""
    facts = folder / f"{name}-1.5.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    groups = ("\n".join([f"[starpo.{g}]", *(f"{k} = {v}" for k, v in e.items())]) for g, e in entry_points.items())
    (facts / "entry_points.txt").write_text("\n".join(groups) + "\n")
    (folder / f"{name}.py").write_text(source)


def ragen(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    env = {
        **os.environ,
        "PYTHONPATH": path,
        "STARPO_STATE_DIR": str(folder / "state"),
        "STARPO_STORE": str(folder / "s"),
    }
    return subprocess.run(
        [sys.executable, "-m", "starpo.flows.cli", *arguments],
        cwd=folder, env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(
        folder,
        "twinplug",
        {
            "environments": {"twin": "twinplug:Twin"},
            "rewards": {"bonus": "twinplug:bonus"},
            "filters": {"first": "twinplug:keep_first"},
            "advantages": {"signs": "twinplug:signs"},
        },
    )
    return folder


SETTINGS = (
    "--set", "environment.type=twin", "--set", "policy.type=pretrained", "--set", "policy.name_or_path=org/nowhere",
    "--set", 'reward.components=["environment", "bonus"]', "--set", "filter.strategy=first",
    "--set", "update.advantage=signs", "--set", "update.advantage_scale=none",
)  # fmt: skip


@pytest.mark.ci
def test_settings_accept_installed_packages_names(installed: Path) -> None:
    result = ragen(installed, "validate", "bandit", *SETTINGS, "--settings")
    assert (result.returncode, result.stderr) == (0, "")
    code = (
        "import json; from starpo.flows.presets import preset; from starpo.tasks.loop.run_code import code_of; "
        "from starpo.ragen.store.artifacts.provenance import versions; "
        "from starpo.flows.cli.options import parse_overrides; "
        f"config = preset('bandit', parse_overrides({SETTINGS[1::2]!r})); "
        "print(json.dumps([config.model_dump(mode='json'), code_of(config), versions()]))"
    )
    path = os.pathsep.join([str(installed), *filter(None, sys.path)])
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    settings, identities, versions = json.loads(result.stdout)
    assert settings["environment"]["type"] == "twin"
    assert len(identities["reward.bonus"]) == len(identities["update.advantage"]) == 16, "digests of their sources"
    assert versions["twinplug"] == "1.5"


@pytest.mark.ci
def test_plugin_environment_listed_and_in_forms(installed: Path) -> None:
    assert "of twinplug 1.5" in ragen(installed, "envs").stdout
    (row,) = json.loads(ragen(installed, "envs", "twin", "--check", "--json").stdout)
    assert (row["about"], row["findings"]) == ("of twinplug 1.5", [])
    code = (
        "from starpo.ragen.config.starpo import StarPOConfig; import json; "
        "print(json.dumps(StarPOConfig.model_json_schema()))"
    )
    path = os.pathsep.join([str(installed), *filter(None, sys.path)])
    schema = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    ).stdout
    assert all(f'"{name}"' in schema for name in ("twin", "bonus", "first", "signs"))


@pytest.mark.ci
def test_ambiguous_name_refused_on_use(tmp_path: Path) -> None:
    install(tmp_path, "one", {"rewards": {"bonus": "one:bonus", "format": "one:bonus"}})
    install(tmp_path, "two", {"rewards": {"bonus": "two:bonus"}})
    result = ragen(tmp_path, "validate", "smoke", "--set", 'reward.components=["bonus"]')
    assert result.returncode == 1
    assert "one 1.5" in result.stderr
    assert "two 1.5" in result.stderr
    result = ragen(tmp_path, "validate", "smoke", "--set", 'reward.components=["format"]')
    assert (result.returncode, "'format' is a built-in name and one of one 1.5" in result.stderr) == (1, True)
    assert ragen(tmp_path, "validate", "smoke", "--set", 'reward.components=["environment"]').returncode == 0
    assert ragen(tmp_path, "runs").returncode == 0


@pytest.mark.ci
def test_package_that_cannot_be_imported(tmp_path: Path) -> None:
    install(tmp_path, "broken", {"environments": {"odd": "broken:Odd"}}, source="import numpy\n1 / 0\n")
    assert ragen(tmp_path, "validate", "smoke").returncode == 0
    result = ragen(tmp_path, "validate", "smoke", "--set", "environment.type=odd")
    assert result.returncode == 1
    assert f"{tmp_path}/broken.py, line 2: ZeroDivisionError" in result.stderr
    assert "Traceback" not in result.stderr


CONFIG = StarPOConfig(environment=BanditSettings())
"""Base configuration of the tests below."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_here.py").write_text(PLUGIN + "\n\nsigns.needs = 'everything'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine_here", raising=False)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("reward.components", ["mine_here:bonos"], "has no attribute 'bonos'"),
        ("reward.components", ["no_such_module_here:bonus"], "No module named 'no_such_module_here'"),
        ("reward.components", ["mine_here:"], "is not a module:attribute, such as my_rewards:bonus"),
        ("reward.components", ["../mine:bonus"], "is not a module:attribute"),
        ("filter.strategy", "tip_fraction", "known: .*or module:attribute"),
        (
            "update.advantage",
            "mine_here:signs",
            "has needs = 'everything'; expected words of clones, components, covariances, credits, critic",
        ),
        ("rollout.engine", "mine_here:Engine", "is not known here"),
    ],
)
def test_wrong_target_is_one_message(here: None, path: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        apply_overrides(CONFIG, {path: value})


def test_a_target_is_used(here: None, tmp_path: Path) -> None:
    from starpo.tasks.reward import reward
    from tests.examples import example

    config = apply_overrides(CONFIG, {"reward.components": ["environment", "mine_here:bonus"]})
    store = Store(str(tmp_path / "store"))
    work = {"stage": {"name": "test", "version": 1}, "settings": {}, "inputs": {}, "seed": None}
    from starpo.schemas.manifest import Stage

    store.put_table("turns", example("turns"), Facts(key="t" * 32, **{**work, "stage": Stage(name="test", version=1)}))
    plain = reward(CONFIG.reward, "t" * 32).carry_out(store)["rewards"]
    paid = reward(config.reward, "t" * 32).carry_out(store)["rewards"]
    assert set(store.manifest("rewards", paid).code) == {"environment", "mine_here:bonus"}
    assert (
        store.read_table("rewards", paid)["total"].to_pylist()
        != store.read_table("rewards", plain)["total"].to_pylist()
    )
