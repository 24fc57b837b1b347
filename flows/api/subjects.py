"""Who is evaluated, and on what, as one writes it: runs, models, servers and players without a model; environments.

subjects, on --read_subject, read_task--> plan_subjects -> PlannedSubjects: runs, and settings of runs of no iteration

A subject that is no run becomes one, of no iteration: its first checkpoint is evaluated and stored as that of any run.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from starpo.flows.api.experiment import agent_of_questions, environment_named, recipe, turn_limits, with_room
from starpo.flows.presets import PRESETS
from starpo.flows.presets import preset as load_preset
from starpo.ragen.agents.policy.agent_settings import read_agent
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.explanation import near
from starpo.ragen.config.load import apply_overrides, recorded_config
from starpo.ragen.config.model_files import model_place
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError, MissingPackageError, PolicyError
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.data_sets import PREFIX, plain_name
from starpo.ragen.envs.make import environment_type
from starpo.ragen.envs.questions.environment import QuestionsSettings
from starpo.ragen.envs.questions.guess import guess_settings
from starpo.ragen.store import Store
from starpo.ragen.store.named_rollouts import named_rollouts
from starpo.ragen.studies.checkpoints import environment_difference
from starpo.ragen.studies.sweep import SweepPanel
from starpo.tasks.loop.run_code import default_run_name

MARKS = ("random", "solver")
"""Players without a model: a lower and an upper mark."""
_ROLLOUT = re.compile(r"(?P<run>[A-Za-z0-9][A-Za-z0-9._-]*):(?P<number>\d+)")
_SERVER = re.compile(r"(?P<model>[^@\s]+)@(?P<url>https?://\S+)")
_QUESTIONS = (".jsonl", ".json", ".parquet")
_BY_MESSAGES = {"protocol": "chat", "max_retries": 40}
"""Settings of a server: retries take up to five minutes, so that one that is started again is waited for."""
_MAX_POSITIONS = 131_072
_WITHOUT_CHECKPOINT = {
    "policy": {
        "type": "tiny", "hidden_size": 16, "num_layers": 1, "num_heads": 1, "num_kv_heads": 1, "intermediate_size": 16,
        "max_positions": _MAX_POSITIONS, "warm_start_steps": 0,
    },
    "rollout.max_response_tokens": 2048,
    "rollout.max_context_tokens": _MAX_POSITIONS,
}  # fmt: skip
"""Settings of a subject whose model is not here: text is stored by an untrained policy's tokenizer, which has a token
for every byte, and the limits are those of the server."""


@dataclass(frozen=True)
class Subject:
    """Who is evaluated.

    Attributes:
        text: As it was written.
        settings: Settings that make a run of no iteration of it; None for a run, which has its own.
    """

    text: str
    settings: Mapping[str, Any] | None

    @property
    def is_run(self) -> bool:
        """Whether it is a run, or one of its checkpoints."""
        return self.settings is None


@dataclass(frozen=True)
class Task:
    """What subjects are evaluated on.

    Attributes:
        name: Name of the panel where another task has the same type of environment.
        environment: Settings of the environment.
        agent: Settings of the agent that came with it; of defaults, the limits of turns and actions alone matter.
        base: Settings that it came with, of a preset, a file or a run; None: an environment alone.
        env_seeds: Seeds of its initial states; None: drawn.
        num_prompts: Initial states of its panel; None: as the settings say.
    """

    name: str
    environment: EnvironmentSettings
    agent: AgentConfig
    base: StarPOConfig | None = None
    env_seeds: tuple[int, ...] | None = None
    num_prompts: int | None = None


@dataclass(frozen=True)
class SubjectRun:
    """A run of no iteration in which a subject plays environments of one type.

    Attributes:
        name: The run's name.
        panel: What the panel of its environment is called in the evaluation.
        config: Its settings.
    """

    name: str
    panel: str
    config: StarPOConfig


@dataclass(frozen=True)
class PlannedSubjects:
    """What an evaluation consists of.

    Attributes:
        runs: `RUN` and `RUN:40`.
        subjects: Name of every other subject -> its runs of no iteration.
        environments: Names of panels of the runs, if these alone are evaluated.
        panels: Else, panels on which they are evaluated; empty for their own.
    """

    runs: list[str]
    subjects: dict[str, list[SubjectRun]]
    environments: list[str]
    panels: dict[str, SweepPanel]


def plan_subjects(
    store: Store, subjects: Sequence[str], on: Sequence[str], overrides: Mapping[str, Any], sizes: Mapping[str, int]
) -> PlannedSubjects:
    """Read what is evaluated on what. Nothing is written.

    Args:
        store: Where the runs are.
        subjects: Runs (`RUN`, `RUN:40`), models as policy.name_or_path, `MODEL@http://SERVER/v1`, 'random', 'solver'.
        on: Names of panels of the first run among the subjects, presets or TOML files of settings, environments as of
            `starpo envs`, files of questions, panels of a run (`RUN`), initial states of a rollout (`RUN:58`). Empty:
            the panels of the first run among the subjects.
        overrides: Dotted path -> value of settings of subjects that are no runs.
        sizes: `num_prompts` and `samples_per_prompt` of panels, as far as they are given.

    Raises:
        ConfigError: If there is no such subject, environment or file, or a setting is invalid.
        StoreError: If a run cannot be read.
    """
    if not subjects:
        raise ConfigError(
            "name who is evaluated: a run (`starpo runs`), a model (a folder, package:NAME, a name on the hub), "
            "MODEL@http://SERVER/v1, random or solver"
        )
    parsed = [read_subject(store, text) for text in dict.fromkeys(subjects)]
    runs = [subject.text for subject in parsed if subject.is_run]
    others = [subject for subject in parsed if subject.settings is not None]
    if not (others or on):
        return PlannedSubjects(runs, {}, [], {})
    first = _config_of(store, runs[0].partition(":")[0]) if runs else None
    if first is not None and not others and all(text in first.panels for text in on):
        return PlannedSubjects(runs, {}, list(on), {})
    tasks: list[Task] = []
    for text in on:
        known = first.panels.get(text) if first is not None else None
        tasks += [Task(text, known, first.agent, first)] if first and known else read_task(store, text)
    if not tasks and others:
        if first is None:
            raise ConfigError(
                f"name what {others[0].text} is evaluated on: --on with a preset, a TOML file of settings, an "
                "environment of `starpo envs`, a file of questions, or RUN:58 for the initial states of a rollout"
            )
        tasks = _panels_of(first)
    if first is not None:
        sizes = {
            "num_prompts": first.evaluation.num_prompts,
            "samples_per_prompt": first.evaluation.samples_per_prompt,
            "panel_seed": first.evaluation.panel_seed,
            **sizes,
        }
    by_type: dict[tuple[str, tuple[int, ...] | None], list[Task]] = {}
    for task in tasks:
        by_type.setdefault((task.environment.type, task.env_seeds), []).append(task)
    named = [_named(of_type) for of_type in by_type.values()]
    planned = {subject.text: [_run_of(subject, of_type, overrides, sizes) for of_type in named] for subject in others}
    panels = {name: panel for of_type in named for name, panel in _panels(of_type).items()}
    return PlannedSubjects(runs, planned, [], panels if on else {})


def read_subject(store: Store, text: str) -> Subject:
    """Read who is evaluated.

    Raises:
        ConfigError: If it is none of what can be evaluated; the message says what was looked for.
        MissingPackageError: If it is a server's model, and the package `openai` is not installed.
    """
    if text in MARKS:
        engine = {"rollout.engine": "scripted", "rollout.scripted": {"player": text}, "agent.form": "free"}
        return Subject(text, {**_WITHOUT_CHECKPOINT, **engine})
    if server := _SERVER.fullmatch(text):
        if find_spec("openai") is None:
            raise MissingPackageError(
                f"'{text}' asks a server and needs the package openai: pip install 'starpo[openai]'"
            )
        options = {"base_url": server["url"].rstrip("/"), "model": server["model"], **_BY_MESSAGES}
        return Subject(text, {**_WITHOUT_CHECKPOINT, "rollout.engine": "openai", "rollout.openai": options})
    if "://" in text:
        raise ConfigError(f"'{text}' names a server without its model: MODEL@{text.rpartition('@')[2]}")
    names = store.runs.names()
    checkpoint = _ROLLOUT.fullmatch(text)
    if text in names or (checkpoint and checkpoint["run"] in names):
        return Subject(text, None)
    try:
        place = model_place(text)
    except PolicyError as error:
        raise ConfigError(
            f"'{text}' is no run in {store.url}{near(text, [*MARKS, *names])}, no MODEL@http://SERVER/v1, neither "
            f"'random' nor 'solver', and no model: {str(error).partition(': ')[2]}"
        ) from error
    recorded = read_agent(place) if place else {}
    policy = {"type": "pretrained", "name_or_path": text, "fine_tuning": None}  # a preset's would change what is asked
    return Subject(text, {"policy": policy, **recorded})


def read_task(store: Store, text: str) -> list[Task]:
    """Read what subjects are evaluated on.

    Raises:
        ConfigError: If there is no such thing, or its settings are invalid.
        StoreError: If a run or its rollout cannot be read.
    """
    names = store.runs.names()
    rollout = _ROLLOUT.fullmatch(text)
    if rollout and rollout["run"] in names:
        return [_states_of(store, text, rollout["run"])]
    if text in names:
        return _panels_of(_config_of(store, text))
    if text in PRESETS.names() or text.endswith(".toml"):
        return _panels_of(load_preset(text))
    if text.startswith(PREFIX) or text.endswith(_QUESTIONS) or ("." in text and Path(text).is_file()):
        questions = guess_settings(text)
        number = len(set(questions.questions()))
        return [Task(plain_name(text), questions, agent_of_questions(questions), num_prompts=number)]
    try:
        environment = environment_named(text)
    except ConfigError as error:
        raise ConfigError(f"--on {text}: it is neither a run, a preset nor a file; {error}") from error
    return [Task(text, environment, turn_limits(environment.type)[0])]


def _config_of(store: Store, run: str) -> StarPOConfig:
    return recorded_config(run, store.runs.get(run).config, "Evaluate runs of this release")


def _panels_of(config: StarPOConfig) -> list[Task]:
    return [Task(name, environment, config.agent, config) for name, environment in config.panels.items()]


def _states_of(store: Store, text: str, run: str) -> Task:
    """Return the initial states of a stored rollout, each once, in the order of its groups."""
    config = _config_of(store, run)
    keys = named_rollouts(store, [text])
    tables = [store.read_table("turns", key, columns=["env_seed"]) for role, key in keys.items() if "turns" in role]
    seeds = dict.fromkeys(seed for table in tables for seed in table["env_seed"].to_pylist())
    return Task(f"states of {text.replace(':', ' ')}"[:64], config.environment, config.agent, config, tuple(seeds))


def _named(tasks: Sequence[Task]) -> list[tuple[str, Task]]:
    """Return tasks of one type of environment with the names of their panels, in an order that is always the same.

    What a run trained on has the name of its type, and comes first; without a run, the type's default settings, on
    which runs may have measured themselves. Others have the names they came with.
    """
    kind = tasks[0].environment.type

    def is_plain(task: Task) -> bool:
        return task.base is None and task.environment.model_dump(exclude_defaults=True).keys() <= {"type"}

    first = [task.environment for task in tasks if task.name == kind] or [
        task.environment for task in tasks if is_plain(task)
    ]
    named = [(kind if task.environment in first else task.name, task) for task in tasks]
    return sorted(named, key=lambda pair: (pair[0] != kind, pair[0], pair[1].base is None))


def _panels(named: Sequence[tuple[str, Task]]) -> dict[str, SweepPanel]:
    """Return the panels of tasks of one type of environment by name.

    Raises:
        ConfigError: If two tasks of one name have different environments.
    """
    panels: dict[str, SweepPanel] = {}
    for name, task in named:
        limits = {name: getattr(task.agent, name) for name in ("max_turns", "max_actions", "max_actions_per_turn")}
        panel = panels.setdefault(name, SweepPanel(environment=task.environment, env_seeds=task.env_seeds, **limits))
        if panel.environment != task.environment:
            raise ConfigError(
                f"--on: '{name}' means two environments: "
                f"{environment_difference(panel.environment, task.environment)}; evaluate on them one by one"
            )
    return panels


def _run_of(
    subject: Subject, named: Sequence[tuple[str, Task]], overrides: Mapping[str, Any], sizes: Mapping[str, int]
) -> SubjectRun:
    """Return the run in which a subject plays tasks of one type of environment, in the order of `_named`."""
    assert subject.settings is not None
    task = named[0][1]
    panels = _panels(named)
    variants = {name: panel.environment.model_dump(mode="json") for name, panel in list(panels.items())[1:]}
    base, source = task.base, f"--set for {subject.text}"
    environment = {
        "environment": task.environment.model_dump(mode="json"),
        "evaluation.variants": variants,
        "evaluation.env_seeds": task.env_seeds and list(task.env_seeds),
        **({"evaluation.num_prompts": task.num_prompts} if task.num_prompts else {}),
        **{f"evaluation.{name}": number for name, number in sizes.items()},
        "iterations": 0,
        "schedule": [],
    }
    sees = task.agent.shows_images and subject.text not in MARKS
    if sees and "rollout.openai" in subject.settings:
        raise ConfigError(
            f"{subject.text} is asked by messages of text, and prompts of {task.name} show images; set "
            "agent.observation = 'text' in a file of settings, or leave it out"
        )
    if base is not None and base.policy.type == "pretrained":
        config = apply_overrides(base, {**environment, **subject.settings, **overrides}, source)
    else:
        limits: dict[str, Any] = {f"agent.{name}": number for name, number in panels[next(iter(panels))].limits.items()}
        if base is not None:
            limits |= {f"evaluation.{name}": getattr(base.evaluation, name) for name in ("num_prompts", "temperature")}
        if sees:
            limits["agent.observation"] = task.agent.observation
        limits["precision"] = None  # in the recipe it depends on the machine; what a model is worth should not
        config = recipe({**limits, **environment, **subject.settings, **overrides}, source)
        if config.policy.type == "pretrained" and "rollout.max_context_tokens" not in overrides:
            config = with_room(config)
    if subject.text in MARKS:
        for environment_of_panel in config.panels.values():
            _check_can_play(subject.text, environment_of_panel)
    name = default_run_name(f"{_short(subject.text)}-on-{_short(task.environment.type)}", config)
    return SubjectRun(name, next(iter(panels)), config)


def _short(text: str) -> str:
    """Return what a run's name can have of a path, an address or a name."""
    last = re.split(r"[/:]", text.partition("@")[0].rstrip("/"))[-1]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-._")[:48] or "subject"


def _check_can_play(mark: str, environment: EnvironmentSettings) -> None:
    for part in environment.tagged().values():
        kind = environment_type(part.type)
        if kind.plays:
            raise ConfigError(f"'{mark}' cannot play environment '{part.type}': it asks a model; leave '{mark}' out")
        if mark == "solver" and isinstance(part, QuestionsSettings) and part.scoring == "pattern":
            raise ConfigError(
                f"'solver' cannot answer {part.path}, whose right answers are patterns (scoring = 'pattern'); leave it "
                "out"
            )
        if mark == "solver" and not kind.demonstrator:
            raise ConfigError(
                f"'solver' cannot play environment '{part.type}', which has no demonstrator; give its class one "
                "(demonstrator = 'module:function', docs/extend.md), or leave it out"
            )
