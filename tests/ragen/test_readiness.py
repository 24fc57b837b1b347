"""Everything that a run lacks is reported before it starts, all at once."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.rollout.trial import trial_turns
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core import registry
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.sokoban.environment import Sokoban
from starpo.ragen.readiness import check_ready, obstacles
from starpo.schemas.validate import validate

TEMPLATES = Path(__file__).parent / "agents" / "prompting" / "templates"
PRETRAINED = {"policy.type": "pretrained"}


def of(folder: Path | str) -> StarPOConfig:
    return preset("smoke", {**PRETRAINED, "policy.name_or_path": str(folder)})


@pytest.mark.parametrize("name", ["smoke", "bandit", "frozen-lake", "sokoban", "webshop"])
def test_presets_are_ready(name: str) -> None:
    check_ready(preset(name), name)


def test_a_whole_model_is_ready(model: Path) -> None:
    check_ready(of(model), "mine")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"mine: policy.name_or_path = '{tmp_path}/typo': there is no such folder"):
        check_ready(of(tmp_path / "typo"), "mine")


def test_teacher_folder_that_is_not_there(model: Path, tmp_path: Path) -> None:
    absent = {"teacher.type": "model", "teacher.name_or_path": str(tmp_path / "typo"), "update.distillation": "sampled"}
    given = {**PRETRAINED, "policy.name_or_path": str(model), "update.distillation_coefficient": 1.0, **absent}
    (obstacle,) = obstacles(preset("smoke", given))
    assert obstacle.startswith(f"teacher.name_or_path = '{tmp_path}/typo': there is no such folder")


def test_a_folder_without_weights(model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "half"))
    (folder / "model.safetensors").unlink()
    assert obstacles(of(folder)) == [f"'{folder}' has no weights model.safetensors: the download or copy is incomplete"]


def test_reasoning_dropping_template_names_folder(model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "thinks"))
    (folder / "chat_template.jinja").write_text((TEMPLATES / "strips_reasoning.jinja").read_text())
    (obstacle,) = obstacles(of(folder))
    assert obstacle.startswith(f"the chat template of '{folder}' drops the reasoning")
    assert "<think>" in obstacle


def test_judge_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = {"reward.components": ["judge"], "reward.options.judge": {"base_url": "http://host/v1", "model": "m"}}
    config = preset("smoke", asking)
    assert not obstacles(config)
    monkeypatch.setattr("starpo.ragen.readiness.find_spec", lambda _: None)
    assert obstacles(config) == [
        "reward component 'judge' asks a server and needs the package openai: pip install 'starpo[openai]'"
    ]


def test_engine_of_servers_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset(
        "smoke", {"rollout.engine": "openai", "rollout.openai": {"base_url": "http://host/v1", "model": "m"}}
    )
    monkeypatch.setattr("starpo.ragen.readiness.find_spec", lambda _: None)
    assert "engine 'openai' asks a server and needs the package openai: pip install 'starpo[openai]'" in obstacles(
        config
    )


def test_adapters_need_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset("smoke", {"update.lora": {"rank": 2, "alpha": 2.0}})
    assert not obstacles(config)
    monkeypatch.setattr("starpo.ragen.readiness.find_spec", lambda _: None)
    assert obstacles(config) == ["update.lora needs the package peft: pip install 'starpo[lora]'"]


LAKE: dict[str, Any] = {"type": "frozen_lake", "observation": "compact", "slip": 0.0}
ROOMS: dict[str, Any] = {"type": "sokoban", "observation": "compact"}
MIXTURE: dict[str, Any] = {"type": "mixture", "parts": {"a": {"environment": ROOMS}, "b": {"environment": LAKE}}}


@pytest.mark.parametrize(
    ("environment", "weights", "obstacle_ends"),
    [
        (ROOMS, {"box": 0.5, "target": 0.5}, []),
        (ROOMS, {"boxes": 0.5, "target": 0.5}, ["boxes, target; expected things of sokoban, which are box, target"]),
        (MIXTURE, {"box": 1.0, "goal": 1.0, "hole": 0.0}, []),
        (MIXTURE, {"box": 1.0}, ["box; expected things of frozen_lake, which are goal, hole"]),
    ],
    ids=["all", "typo", "each part", "one part"],
)
def test_statement_weights_name_existing_things(
    environment: dict[str, Any], weights: dict[str, float], obstacle_ends: list[str]
) -> None:
    formed = {"agent.form": "grounding", "reward.components": ["grounding"], "environment": environment}
    formed |= {"reward.options.grounding": {"weights": weights}, "evaluation.variants": {}}
    assert obstacles(preset("smoke", formed)) == [
        f"reward.options.grounding.weights weighs {each}" for each in obstacle_ends
    ]


@pytest.mark.parametrize("later", ["had_invalid_action", "reward"])
def test_prompt_failing_on_later_turn(later: str) -> None:
    block = f"{{{{ observation }}}}{{% if {later} %}}{{{{ agent.max_turn }}}}{{% endif %}}"
    text = f"{{% block introduction %}}{{% endblock %}}{{% block turn %}}{block}{{% endblock %}}"
    (obstacle,) = obstacles(preset("smoke", {"agent.prompt": "template", "agent.prompt_template": text}))
    assert "block turn: 'dict object' has no attribute 'max_turn'" in obstacle


TOOLS: dict[str, Any] = {"type": "search_qa", "actions": "tools"}


@pytest.mark.parametrize(
    "played",
    [
        {"environment": {"type": "mixture", "parts": {"a": {"environment": part}, "b": {"environment": other}}}}
        for part, other in ((LAKE, TOOLS), (TOOLS, LAKE))
    ]
    + [{"environment": LAKE, "evaluation.variants": {"Tools": TOOLS}}],
    ids=["second part", "first part", "variant"],
)
@pytest.mark.parametrize(
    ("used", "fault"),
    [("'by ' + separator", 'can only concatenate str (not "NoneType")'), ("1 / (separator or '')|length", "ZeroDiv")],
)
def test_prompt_failing_in_one_environment(played: dict[str, Any], used: str, fault: str) -> None:
    text = f"{{% block introduction %}}{{% endblock %}}{{% block turn %}}{{{{ {used} }}}}{{% endblock %}}"
    small = {"evaluation.num_prompts": 2, "agent.prompt": "template", "agent.prompt_template": text}
    (obstacle,) = obstacles(preset("smoke", {**played, **small}))
    assert fault in obstacle


def test_missing_demonstrator_and_large_panel_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sokoban, "demonstrator", "")
    # 5x5 rooms at distance 1: fewer than 300 of them
    small = {"environment.height": 5, "environment.width": 5, "environment.max_solution": 1}
    with pytest.raises(ConfigError) as refused:
        check_ready(preset("smoke", {**small, "evaluation.num_prompts": 300}), "mine")
    first, second, third = str(refused.value).split("\n")
    assert first == "mine: 2 things stand in the way:"
    assert second.startswith("  environment 'sokoban' has no demonstrator")
    assert third.startswith("  environment: sokoban: 101 initial states drawn for")
    assert "lower evaluation.num_prompts" in third


class Unlucky(Sokoban):
    """Environment that fails at its first state."""

    lucky: ClassVar[list[int]] = []

    def reset(self, **_: Any) -> Any:
        return self.lucky[0]


class Overflowing(Sokoban):
    """Environment that fails for seeds of 2**32 and above, as most are."""

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> Any:
        if seed >= 2**32:
            raise OverflowError(f"seed of {seed.bit_length()} bits")
        return super().reset(seed=seed, dynamics_seed=dynamics_seed)


class Unmade(Sokoban):
    """Environment that cannot be created."""

    def __init__(self, settings: Any) -> None:
        raise KeyError("SOKOBAN_DATA")


def line_of(code: str) -> int:
    """Number of the first line of this file that contains this code."""
    return next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if code in text)


def test_failing_environment_named_with_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.ENVIRONMENTS, "sokoban", f"{__name__}:Unlucky")
    (obstacle,) = obstacles(preset("smoke", {"evaluation.panel_seed": 5}))
    assert f"{__file__}, line {line_of('self.lucky[0]')}: IndexError: list index out of range" in obstacle


@pytest.mark.parametrize(
    ("kind", "code", "fault"),
    [
        (Unmade, "raise Key", "KeyError: 'SOKOBAN_DATA'"),
        (Unlucky, "self.lucky[0]", "IndexError: list"),
        (Overflowing, "raise Over", "OverflowError: seed of "),
    ],
)
def test_failing_part_named_with_line(
    monkeypatch: pytest.MonkeyPatch, kind: type[Sokoban], code: str, fault: str
) -> None:
    monkeypatch.setitem(registry.ENVIRONMENTS, "sokoban", f"{__name__}:{kind.__name__}")
    (obstacle,) = obstacles(preset("smoke", {"environment": MIXTURE, "evaluation.variants": {}}))
    assert obstacle.startswith("environment: a: ")
    assert f"{__file__}, line {line_of(code)}: {fault}" in obstacle


PAYS = "import json\n\ndef pay(turns, config):\n    return [BODY for row in turns.to_pylist()]\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("json.loads(row['info'])['effective']", "KeyError: 'effective'"),  # a malformed response has no info
        ("len(row['think'])", "TypeError: object of type 'NoneType' has no len()"),
        ("row['reward']", "KeyError: 'reward'"),
        ("float('nan')", "returned nan for"),
    ],
)
@pytest.mark.parametrize("played", ["smoke", "bandit"])
def test_reward_component_tried_before_work(mine: Callable[[str], None], played: str, body: str, message: str) -> None:
    mine(PAYS.replace("BODY", body))
    (obstacle,) = obstacles(preset(played, {"reward.components": ["environment", "mine_code:pay"]}))
    assert obstacle.startswith("reward component 'mine_code:pay' ")
    assert message in obstacle


def test_fitting_component_is_ready(mine: Callable[[str], None]) -> None:
    """It reads what only this environment's rows have: its type, its observations, its info."""
    mine(
        PAYS.replace(
            "BODY",
            "1.0 * (row['env'] == 'bandit') + row['success'] * json.loads(row['info']).get('effective', False)",
        )
    )
    assert not obstacles(preset("bandit", {"reward.components": ["environment", "mine_code:pay"]}))


def test_every_status_is_tried() -> None:
    config = preset("sokoban", {"agent.form": "grounding", "agent.prompt": "full"})
    turns = trial_turns(config.environment, config.agent)
    validate(turns, "turns")
    assert set(turns["status"].to_pylist()) == {"ok", "format_error", "truncated", "env_error"}
    assert set(turns["env"].to_pylist()) == {"sokoban"}


@pytest.mark.ci
@pytest.mark.timeout(30)
@pytest.mark.parametrize("first", [0, 1], ids=["always", "in the panel"])
def test_hanging_environment_is_one_obstacle(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Sokoban.reset

    def reset(self: Sokoban, *, seed: int, dynamics_seed: int = 0) -> Any:
        if seed > 9 or not first:  # the seeds of panels are large
            time.sleep(1e6)
        return original(self, seed=seed, dynamics_seed=dynamics_seed)

    config = preset("smoke", {"evaluation.panel_seed": 90 + first})
    monkeypatch.setenv("STARPO_ENVIRONMENT_S", "0.3")
    monkeypatch.setattr(Sokoban, "reset", reset)
    assert obstacles(config) == ["environment 'sokoban' took longer than 0.3 s. Mend it, or raise STARPO_ENVIRONMENT_S"]
