"""Settings for a model and an environment, written as a TOML file with the reason for each choice.

model, environment -> draft -> tokenizer, first prompts, demonstrations, memory -> text that validates
"""

import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from jinja2 import Environment as Templates

from starpo.flows.presets import PRESETS, names, preset
from starpo.ragen.advice import LORA_FACTOR, usual_learning_rate
from starpo.ragen.agents.prompting.lengths import NUM_STATES
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.load import apply_overrides, load_config
from starpo.ragen.config.policy import FineTuning
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.context_fit import ContextFit, context_fits, tokenizer_and_positions
from starpo.ragen.core.errors import ConfigError, PolicyError
from starpo.ragen.core.registry import ENVIRONMENTS, SUITES
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.make import environment_type
from starpo.ragen.envs.questions.environment import QuestionsSettings
from starpo.ragen.envs.questions.guess import guess_settings
from starpo.ragen.envs.variants import Variant
from starpo.ragen.envs.variants import variant as find_variant
from starpo.ragen.sizing.architecture import architecture_of, known_size
from starpo.ragen.sizing.device import GIB, host_memory, this_machine
from starpo.ragen.sizing.estimate import estimate
from starpo.ragen.sizing.fit import misfits

_NUM_DEMONSTRATED = 64
_RESPONSE_WITHOUT_DEMONSTRATIONS = 256
_LONGEST = 1_000_000
_TEMPLATE, _QUESTIONS_TEMPLATE = "experiment.toml.txt", "questions.toml.txt"
_PANEL = 128


@dataclass(frozen=True)
class Experiment:
    """Settings for a model and an environment.

    Attributes:
        text: The TOML file.
        notes: What its user should know: what was left out, and what does not fit.
    """

    text: str
    notes: tuple[str, ...]


def plan_experiment(model: str, environment: str, file: str) -> Experiment:
    """Choose settings for a model and an environment on this machine.

    Args:
        model: As in policy.name_or_path; a model on the hub is downloaded.
        environment: A variant or a type of environment, `module:attribute`, or suite/task.
        file: Name of the file that the text is for, which it names.

    Raises:
        StarPOError: If there is no such model or environment, the model has no usable chat template, or its context is
            shorter than the environment's prompt.
    """
    variant = _variant(environment)
    agent, limits_from = turn_limits(variant.type)
    return _plan(model, environment, variant, {"file": file, "agent": agent, "limits_from": limits_from})


def plan_questions(path: str, test: str, model: str | None, file: str) -> Experiment:
    """Choose settings for questions of the user's own.

    Args:
        path: Questions to train on, as in environment.path.
        test: Questions to evaluate on; "": some of `path`.
        model: As in policy.name_or_path; None for the tiny policy.
        file: Name of the file that the text is for, which it names.

    Raises:
        StarPOError: If the questions cannot be used, or see `plan_experiment`.
    """
    settings = guess_settings(path, test)
    changed = settings.model_dump(mode="json", exclude_defaults=True, exclude={"digest", "test_digest"})
    variant = Variant("questions", "questions", {name: value for name, value in changed.items() if name != "type"})
    num_listed = len(set(settings.test_questions()))
    num_prompts = min(_PANEL, num_listed if test else num_listed // 4)
    if num_prompts == 0:
        raise ConfigError(f"{test or path} has {num_listed} questions: too few to evaluate on")
    chosen = {
        "file": file,
        "agent": agent_of_questions(settings),
        "limits_from": "one answer; environment.max_tries allows more",
        "num_prompts": num_prompts,
        "num_prompts_from": f"of {num_listed} questions of {test or path}",
        "skill": 1.0,
    }
    if model is None:
        draft = {**chosen, "settings": _settings(variant), "path": path}
        return Experiment(
            _render(draft, _QUESTIONS_TEMPLATE), ("the tiny policy knows no language; --model names one",)
        )
    return _plan(model, path, variant, chosen)


def _plan(model: str, environment: str, variant: Variant, chosen: dict[str, Any]) -> Experiment:
    """Choose what follows from the model and this machine, in addition to what was chosen for the environment."""
    file = chosen["file"]
    machine = this_machine()
    has_gpu = not machine.is_cpu
    has_demonstrator = bool(environment_type(variant.type).demonstrator)
    variables: dict[str, Any] = {
        "skill": 0.35,
        **chosen,
        "model": model,
        "model_text": _toml(model),
        "environment": environment,
        "kind": variant.type,
        "settings": _settings(variant),
        "extends": _toml(["pretrained", "gpu"] if has_gpu else ["pretrained"]),
        "has_gpu": has_gpu,
        "response": _RESPONSE_WITHOUT_DEMONSTRATIONS,
        "context": _LONGEST,
        "learning_rate": "1e-5",
    }
    notes: tuple[str, ...] = (
        () if has_demonstrator else (f"'{variant.type}' has no demonstrator, so there is no fine-tuning",)
    )

    draft = _load(_render(variables))
    variables |= _response(draft) if has_demonstrator else {
        "response_from": "there is nobody to measure; --play says how many responses reach it"
    }  # fmt: skip
    variables |= _context(_load(_render(variables)))
    size = known_size(draft)
    variables |= _of_the_size(size, is_lora=False)
    if has_demonstrator:
        rate = "2e-4" if size is None or size < 300_000_000 else "5e-5"
        steps, batch_size = (60, 32) if has_gpu else (24, 16)
        variables["tuning"] = {"steps": steps, "batch_size": batch_size, "learning_rate": rate}
    if size is not None and (lack := _lack_of_memory(_load(_render(variables)))):
        variables |= {"has_lora": True, "memory": f"adapters, as with all weights {lack}"}
        variables |= _of_the_size(size, is_lora=True)
        if lack := _lack_of_memory(_load(_render(variables))):
            notes += (f"even with LoRA {lack}: `starpo plan {file}` says of what",)
    if size is None:
        notes += ("the model's size is not known here, so its memory was not checked: see `starpo plan`",)
    return Experiment(_render(variables), notes)


def agent_of_questions(settings: QuestionsSettings) -> AgentConfig:
    """Return settings of an agent that gives one answer, and sees the picture of a question if it has one."""
    observation: Literal["text", "both"] = "both" if settings.columns.image else "text"
    return AgentConfig(max_turns=1, max_actions=1, max_actions_per_turn=1, observation=observation)


def environment_named(name: str) -> EnvironmentSettings:
    """Return the settings of an environment: a variant or a type, `module:attribute`, or suite/task.

    Raises:
        ConfigError: If there is no such environment.
    """
    return _variant(name).settings


def recipe(overrides: Mapping[str, Any], name: str) -> StarPOConfig:
    """Return the settings of the recipe for pretrained models with others, by dotted path.

    Args:
        overrides: Dotted path -> value.
        name: Where the others come from, for messages.

    Raises:
        ConfigError: If a setting is unknown or invalid.
    """
    return _load('extends = ["pretrained"]', overrides, name)


def with_room(config: StarPOConfig) -> StarPOConfig:
    """Return the settings with a context in which all turns fit, or one at a time where the model has fewer positions.

    Raises:
        ConfigError: If not even one turn fits.
    """
    whole = config.rollout.model_copy(update={"max_context_tokens": _LONGEST})
    room = _context(config.model_copy(update={"rollout": whole}))
    window = {"agent.context": "window"} if room["has_window"] else {}
    return apply_overrides(config, {"rollout.max_context_tokens": room["context"], **window})


def _variant(name: str) -> Variant:
    if name in ENVIRONMENTS and name not in SUITES:
        return Variant("its default settings", name)
    return find_variant(name)


def turn_limits(kind: str) -> tuple[AgentConfig, str]:
    """Return the limits of turns and actions, of the environment's own preset if it has one, and their source."""
    name = kind.replace("_", "-")
    if name in names():
        return preset(name).agent, f"these three as in the preset `{name}`"
    return AgentConfig(), "these three are defaults: how many turns and actions does an episode take?"


def _settings(variant: Variant) -> dict[str, str]:
    return {name: _toml(value) for name, value in {"type": variant.type, **variant.changed}.items()}


def _render(variables: dict[str, Any], template: str = _TEMPLATE) -> str:
    text = (files("starpo.flows.cli") / "templates" / template).read_text(encoding="utf-8")
    template_environment = Templates(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return template_environment.from_string(text).render(variables)


def _load(
    text: str, overrides: Mapping[str, Any] = MappingProxyType({}), name: str = "the settings made here"
) -> StarPOConfig:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "experiment.toml"
        path.write_text(text, encoding="utf-8")
        return load_config(path, PRESETS.folders, overrides, name)


def _response(draft: StarPOConfig) -> dict[str, Any]:
    """Measure demonstrated responses: the limit is one and a half times the longest, in steps of 16."""
    from starpo.ragen.learning.demonstrations import demonstrate_turns

    loaded = tokenizer_and_positions(draft, should_download=True)
    assert loaded is not None
    played = demonstrate_turns(
        FineTuning(demonstration_skill=0.35), draft.environment, draft.agent, _LONGEST, frozenset(), loaded[0],
        _NUM_DEMONSTRATED,
    )  # fmt: skip
    longest = max(map(len, played.responses))
    return {
        "response": _up(1.5 * longest, 16),
        "response_from": f"half as much again as the longest of {len(played.responses)} demonstrated ones, {longest}",
    }


def _context(draft: StarPOConfig) -> dict[str, Any]:
    """Choose the context: room for all turns, or a window of one where the model has too few positions.

    Raises:
        ConfigError: If not even one turn fits.
    """
    fit = _fit(draft)
    positions, whole = fit.positions, fit.num_needed
    has_window = positions is not None and whole > positions
    window = {"has_window": has_window, "whole": whole, "positions": positions}
    if has_window:
        agent = draft.agent.model_copy(update={"context": "window"})
        fit = _fit(draft.model_copy(update={"agent": agent}))
    if positions is not None and fit.num_needed > positions:
        raise ConfigError(str(fit.misfit))
    num_turns = 1 if has_window else draft.agent.max_turns
    each = f"{num_turns} of {fit.rollout.max_response_tokens} for a response" + (
        f", {num_turns - 1} of {fit.lengths.later} for a later turn" if num_turns > 1 else ""
    )
    context = _up(fit.num_needed, 64)
    return window | {
        "context": context if positions is None else min(context, positions),
        "context_from": f"the longest of {NUM_STATES} first prompts has {fit.lengths.longest} tokens; {each}",
    }


def _fit(draft: StarPOConfig) -> ContextFit:
    return max(context_fits(draft, should_download=True), key=lambda fit: fit.num_needed)


def _of_the_size(size: int | None, *, is_lora: bool) -> dict[str, Any]:
    rate = usual_learning_rate(size, is_lora=is_lora)
    of = "a model of unknown size" if size is None else f"{size / 1e6:,.0f}M parameters"
    return {
        "learning_rate": f"{rate:g}".replace("e-0", "e-"),  # as people write it
        "learning_rate_from": f"usual for {of}" + (f" with LoRA: {LORA_FACTOR} times that of all weights" * is_lora),
    }


def _lack_of_memory(config: StarPOConfig) -> str:
    machine = this_machine()
    try:
        needs = estimate(config, architecture_of(config), machine)
    except PolicyError:
        return ""
    lacks = misfits(needs, host_memory())
    needed = f"it would need about {needs.memory.peak_bytes / GIB:.1f} GiB"
    return f"{needed} of {machine.memory_bytes / GIB:.1f}" if lacks else ""


def _up(number: float, step: int) -> int:
    return math.ceil(number / step) * step


def _toml(value: Any) -> str:
    """Write a value as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(inner)}" for name, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)  # strings, numbers and booleans are written alike in both
