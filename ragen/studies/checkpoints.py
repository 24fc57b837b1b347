"""Cells of a sweep, for the current state of its runs: a run in progress has more of them each time.

Sweep, store --expand--> Expansion(cells, checkpoints still missing)
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.evaluation import EvaluationConfig
from starpo.ragen.config.explanation import near
from starpo.ragen.config.load import apply_overrides, recorded_config
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.variants import VARIANTS, variant
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import checkpoint_keys
from starpo.ragen.studies.sweep import Sweep, SweepPanel

_CHECKPOINT = re.compile(r"(.*?)(?::(\d+))?", re.DOTALL)
"""A run, or the checkpoint after so many iterations."""
_SIZES = {
    "num_prompts": "give --prompts N for both, or ",
    "samples_per_prompt": "give --samples N for both, or ",
    "panel_seed": "",
}
"""Settings that define a panel -> advice if they differ between runs."""


@dataclass(frozen=True)
class SweepCell:
    """One checkpoint on one panel at one temperature with one seed.

    Attributes:
        run: Run that the checkpoint belongs to.
        trained_on: Name of the environment that the run trains on.
        iteration: Number of iterations before the checkpoint.
        checkpoint: Key of the checkpoint.
        environment: Name of the panel.
        settings: Settings of the panel's environment.
        agent: Agent settings of the run; on a panel that only another run has, with that run's turn and action limits.
        rollout: Rollout settings of the run.
        evaluation: Evaluation settings of the run, with the sweep's temperature and sizes.
        seed: Index of the batch of members.
        recorded: Name of the panel in the run's records, if it is another: initial states of a rollout have the name of
            their environment there.
    """

    run: str
    trained_on: str
    iteration: int
    checkpoint: str
    environment: str
    settings: EnvironmentSettings
    agent: AgentConfig
    rollout: RolloutConfig
    evaluation: EvaluationConfig
    seed: int
    recorded: str = ""

    @property
    def panel(self) -> str:
        """Name of the panel in the run's records."""
        return self.recorded or self.environment

    @property
    def label(self) -> str:
        """Display name; unique in a sweep."""
        return f"{self.run}@{self.iteration} {self.environment} T={self.evaluation.temperature:g} seed={self.seed}"


@dataclass(frozen=True)
class Expansion:
    """An expanded sweep.

    Attributes:
        cells: By run, checkpoint, environment, temperature and seed, in the requested order.
        waiting: Run -> requested checkpoints that do not exist yet.
    """

    cells: list[SweepCell]
    waiting: dict[str, str]


def expand(sweep: Sweep, store: Store) -> Expansion:
    """Expand a sweep into its cells.

    Args:
        sweep: The specification.
        store: The store that has the runs; records are read, artifacts are not.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If a run's settings are from another release, an environment is unknown or has different settings
            in different runs, or a checkpoint is requested that its run will never have.
    """
    evaluated = _evaluated(sweep, store)
    _check_comparable(evaluated)
    cells: list[SweepCell] = []
    waiting: dict[str, str] = {}
    for entry in evaluated:
        chosen, lacking = _chosen(sweep, entry, store)
        if lacking:
            waiting[entry.run] = lacking
        for number, key in chosen.items():
            for name, panel in entry.panels.items():
                for temperature in sweep.temperatures or [panel.evaluation.temperature]:
                    evaluation = panel.evaluation.model_copy(update={"temperature": temperature})
                    cells += [
                        SweepCell(
                            entry.name, entry.config.environment.type, number, key, name, panel.environment,
                            panel.agent, entry.config.rollout, evaluation, seed, panel.name,
                        )
                        for seed in sweep.seeds
                    ]  # fmt: skip
    return Expansion(cells, waiting)


class _Panel(NamedTuple):
    """A panel as one run plays it."""

    name: str
    environment: EnvironmentSettings
    agent: AgentConfig
    evaluation: EvaluationConfig


@dataclass(frozen=True)
class _Evaluated:
    """A run, as far as it is evaluated.

    Attributes:
        name: What the table calls it: the run's name, or the subject's that it stands for.
        run: The run.
        only: Number of the one checkpoint that is evaluated; None for those of the sweep's `iterations`.
        config: The run's settings, with the sweep's overrides.
        panels: Name -> panel.
    """

    name: str
    run: str
    only: int | None
    config: StarPOConfig
    panels: dict[str, _Panel]


def _evaluated(sweep: Sweep, store: Store) -> list[_Evaluated]:
    def config_of(run: str) -> StarPOConfig:
        return recorded_config(run, store.runs.get(run).config, "Evaluate runs of this release")

    names = [match.groups() for text in sweep.runs if (match := _CHECKPOINT.fullmatch(text))]
    configs = {run: apply_overrides(config_of(run), sweep.overrides, f"run {run}") for run, _ in names}
    evaluated = []
    for run, number in names:
        config = configs[run]
        panels = {
            name: _Panel(name, settings, _agent(sweep, run, name, configs), _evaluation(sweep, config))
            for name, settings in ({} if sweep.panels else _environments(sweep, run, configs)).items()
        }
        panels |= {name: _given(sweep, config, name, panel) for name, panel in sweep.panels.items()}
        evaluated.append(_Evaluated(run, run, int(number) if number else None, config, panels))
    for subject, runs in sweep.subjects.items():
        for run, shown in runs.items():
            config = config_of(run)
            evaluation = _evaluation(sweep, config)
            shown_names = [shown, *list(config.panels)[1:]]
            panels = {
                called: _Panel(name, settings, config.agent, evaluation)
                for called, (name, settings) in zip(shown_names, config.panels.items(), strict=True)
            }
            evaluated.append(_Evaluated(subject, run, 0, config, panels))
    return evaluated


def _given(sweep: Sweep, config: StarPOConfig, name: str, panel: SweepPanel) -> _Panel:
    """Return a panel of the sweep as a run plays it: with the run's own limits if it is one of its panels."""
    is_own = panel.environment in config.panels.values()
    agent = config.agent if is_own else config.agent.model_copy(update=panel.limits)
    evaluation = _evaluation(sweep, config)
    return _Panel(name, panel.environment, agent, evaluation.model_copy(update={"env_seeds": panel.env_seeds}))


def _chosen(sweep: Sweep, entry: _Evaluated, store: Store) -> tuple[dict[int, str], str]:
    """Return number -> key of the checkpoints to evaluate that a run has now, and what it does not have yet.

    Raises:
        ConfigError: If a checkpoint is requested that it will never have.
    """
    keys = checkpoint_keys(store.runs.iterations(entry.run))
    wanted = sweep.iterations if isinstance(sweep.iterations, list) else []
    if entry.only is not None:
        wanted = [entry.only]
    if wanted and max(wanted) > entry.config.iterations:
        raise ConfigError(
            f"sweep {sweep.name}: iterations = {wanted}: run {entry.run} ends after {entry.config.iterations} "
            f"iterations, so it will never have a checkpoint {max(wanted)}"
        )
    absent = [number for number in wanted if number not in keys]
    numbers = sweep.chosen(keys, entry.config.iterations) if entry.only is None else wanted
    lacking = f"checkpoint {', '.join(map(str, absent))}" if absent else "" if keys else "its first checkpoint"
    return {number: keys[number] for number in numbers if number in keys}, lacking


def _environments(sweep: Sweep, run: str, configs: Mapping[str, StarPOConfig]) -> dict[str, EnvironmentSettings]:
    panels = configs[run].panels
    if sweep.is_matrix:
        everyones = {name: settings for config in configs.values() for name, settings in config.panels.items()}
        panels = {name: panels.get(name, settings) for name, settings in everyones.items()}
        if not sweep.environments:
            return panels
    if not sweep.environments:
        common = [name for name in panels if all(name in config.panels for config in configs.values())]
        if not common:
            raise ConfigError(
                f"sweep {sweep.name}: its runs have no panel in common ({run}: {', '.join(panels)}); name "
                "environments, or evaluate them one by one"
            )
        return {name: panels[name] for name in common}
    return {name: panels[name] if name in panels else _known(sweep, run, name, panels) for name in sweep.environments}


def _known(sweep: Sweep, run: str, name: str, panels: Collection[str]) -> EnvironmentSettings:
    """Return the settings of an environment that is no panel of the run."""
    try:
        entry = variant(name)
    except ConfigError as error:
        raise ConfigError(
            f"sweep {sweep.name}: environments: '{name}' is neither a panel of run {run} nor an environment"
            f"{near(name, [*VARIANTS, *panels])}; panels: {', '.join(panels)}; `starpo envs` lists the environments"
        ) from error
    return entry.settings


def _agent(sweep: Sweep, run: str, panel: str, configs: Mapping[str, StarPOConfig]) -> AgentConfig:
    """Return the run's agent settings; in a matrix, on a panel of another run, with that run's turn and action limits.

    A bandit agent has one action, too few to solve a maze.
    """
    run_config = configs[run]
    if not sweep.is_matrix or panel in run_config.panels:
        return run_config.agent
    owner = next((config for config in configs.values() if panel in config.panels), run_config)
    limits = ("max_turns", "max_actions", "max_actions_per_turn")
    return run_config.agent.model_copy(update={name: getattr(owner.agent, name) for name in limits})


def _evaluation(sweep: Sweep, config: StarPOConfig) -> EvaluationConfig:
    overrides = {"num_prompts": sweep.num_prompts, "samples_per_prompt": sweep.samples_per_prompt}
    return config.evaluation.model_copy(update={name: value for name, value in overrides.items() if value is not None})


def _check_comparable(evaluated: Sequence[_Evaluated]) -> None:
    """Check that each name means one panel: success on different initial states cannot be compared."""
    firsts: dict[str, tuple[str, _Panel]] = {}
    for entry in evaluated:
        for name, panel in entry.panels.items():
            first, other = firsts.setdefault(name, (entry.name, panel))
            if panel.environment != other.environment:
                raise ConfigError(
                    f"'{name}' means one environment in run {first} and another in run {entry.name}: "
                    f"{environment_difference(other.environment, panel.environment)}; evaluate them one by one"
                )
            for setting, advice in _SIZES.items():
                one, value = (getattr(evaluation, setting) for evaluation in (other.evaluation, panel.evaluation))
                if one != value:
                    raise ConfigError(
                        f"evaluation.{setting} is {one} in run {first} and {value} in run {entry.name}, so their "
                        f"panels differ; {advice}evaluate them one by one"
                    )


def environment_difference(one: EnvironmentSettings, other: EnvironmentSettings) -> str:
    """Name the settings in which two environments differ, with both values."""
    mine, theirs = one.model_dump(mode="json"), other.model_dump(mode="json")
    return ", ".join(
        f"{name} = {mine.get(name)!r} and {theirs.get(name)!r}"
        for name in {**mine, **theirs}
        if mine.get(name) != theirs.get(name)
    )
