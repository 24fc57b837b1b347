"""An environment named by `module:attribute`: its settings, vocabulary and faults, and commands that accept it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from starpo.flows.cli.envs import envs
from starpo.flows.cli.new import environment
from starpo.flows.presets import preset
from starpo.ragen.agents.policy.tokenizer import extra_vocabulary, make_tokenizer, vocabulary_digest
from starpo.ragen.config.load import apply_overrides, load_config
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs import make
from starpo.ragen.envs.make import settings_type
from starpo.ragen.envs.variants import variant
from starpo.ragen.readiness import obstacles
from starpo.tasks.rollout import rollout
from starpo.tasks.warm_start import warm_start

NAME = "stairs_of_tests"
TARGET = f"{NAME}:StairsOfTests"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    environment(NAME, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop(NAME, None)
    settings_type.cache_clear()


@pytest.fixture
def config(folder: Path) -> StarPOConfig:
    return preset(str(folder / f"{NAME}.toml"))


def test_custom_settings_survive_the_record(config: StarPOConfig) -> None:
    assert (config.environment.type, config.environment.size) == (TARGET, 12)  # type: ignore[attr-defined]
    assert StarPOConfig.model_validate_json(config.model_dump_json()) == config
    assert config.model_dump(mode="json")["environment"] == {"type": TARGET, "size": 12}
    assert make(config.environment).settings.size == 12
    with pytest.raises(ConfigError, match=r"environment.size = 1 .*: should be greater than or equal to 3"):
        apply_overrides(config, {"environment.size": 1})
    with pytest.raises(ConfigError, match=r"environment.sise = 4 .*no such setting|Extra inputs"):
        apply_overrides(config, {"environment.sise": 4})


def test_settings_altered_by_json_survive(folder: Path) -> None:
    file = folder / f"{NAME}.py"
    file.write_text(
        file.read_text().replace(
            '    """Cells."""',
            '    """Cells."""\n    rewards: tuple[float, ...] = (1.0, 0.5)\n    names: dict[str, list[str]] = {}',
        )
    )
    config = preset(str(folder / f"{NAME}.toml"), {"environment.rewards": [2, 1]})
    assert config.environment.rewards == (2.0, 1.0)  # type: ignore[attr-defined]
    assert StarPOConfig.model_validate_json(config.model_dump_json()) == config
    assert obstacles(config) == []


@pytest.mark.ci
def test_words_are_tokens_of_its_policies(config: StarPOConfig) -> None:
    plain, extended = make_tokenizer(), make_tokenizer(extra_vocabulary(config.policy, config.environment))  # type: ignore[arg-type]
    text = "goal left 3"
    assert len(extended.encode(text)) == 3 < len(plain.encode(text))
    assert extended.decode(extended.encode(text)) == text
    assert extended.encode("P 1 2")[0] == plain.encode("P 1 2")[0]
    assert vocabulary_digest() != vocabulary_digest(extra_vocabulary(config.policy, config.environment))  # type: ignore[arg-type]


def test_code_is_part_of_keys(config: StarPOConfig) -> None:
    assert warm_start(config).code["demonstrator"] == f"{NAME}:demonstrate"
    assert rollout(0, config, "c" * 32).code["environment"] == TARGET


@pytest.mark.ci
def test_broken_contract_reported_before_run(
    folder: Path, config: StarPOConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    assert obstacles(config) == []
    file = folder / f"{NAME}.py"
    file.write_text(file.read_text().replace("random.Random(seed)", "random.Random()"))
    sys.modules.pop(NAME, None)
    settings_type.cache_clear()
    problems = obstacles(load_config(folder / f"{NAME}.toml", [Path(preset.__code__.co_filename).parent], {}))
    assert problems
    assert all(TARGET in line for line in problems)
    with pytest.raises(typer.Exit):
        envs([TARGET], check=True, as_json=True)
    (row,) = json.loads(capsys.readouterr().out)
    assert row["findings"]


@pytest.mark.ci
def test_commands_take_its_name(config: StarPOConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert make(variant(TARGET).settings).actions == ("Left", "Right")
    envs([TARGET], check=True, as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["type"] == TARGET
    with pytest.raises(ConfigError, match=r"'sokoban' is not an environment \(did you mean 'Sokoban'.*stairs:Stairs"):
        variant("sokoban")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sokoban", "is already a built-in environment"),
        ("json", "is already a module that can be imported here"),
        ("../x", "cannot be a module"),
        ("class", "cannot be a module"),
        ("Stairs", "cannot be a module"),
    ],
)
def test_names_that_cannot_be(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        environment(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / f"test_{NAME}.py").write_text("mine")
    with pytest.raises(ConfigError, match="already exists, and nothing was written"):
        environment(NAME, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [f"test_{NAME}.py"]
