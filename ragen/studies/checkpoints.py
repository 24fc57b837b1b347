"""Cells of a sweep, for the current state of its runs: a run in progress has more of them each time.

Sweep, store --expand--> Expansion(cells, checkpoints still missing)
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.evaluation import EvaluationConfig
from starpo.ragen.config.explanation import near
from starpo.ragen.config.load import recorded_config
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.variants import VARIANTS, variant
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import checkpoint_keys
from starpo.ragen.studies.sweep import Sweep

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
    configs = {
        run: recorded_config(run, store.runs.get(run).config, "Sweep over runs of this release") for run in sweep.runs
    }
    environments = {run: _environments(sweep, run, configs) for run in configs}
    evaluations = {run: _evaluation(sweep, config) for run, config in configs.items()}
    _check_comparable(environments, evaluations)
    cells: list[SweepCell] = []
    waiting: dict[str, str] = {}
    for run, config in configs.items():
        keys = checkpoint_keys(store.runs.iterations(run))
        iterations = sweep.iterations if isinstance(sweep.iterations, list) else []
        if iterations and max(iterations) > config.iterations:
            raise ConfigError(
                f"sweep {sweep.name}: iterations = {iterations}: run {run} ends after {config.iterations} iterations, "
                f"so it will never have a checkpoint {max(iterations)}"
            )
        if absent := [number for number in iterations if number not in keys]:
            waiting[run] = f"checkpoint {', '.join(map(str, absent))}"
        elif not keys:
            waiting[run] = "its first checkpoint"
        cells += [
            SweepCell(
                run, config.environment.type, number, keys[number], name, settings,
                _agent(sweep, run, name, configs), config.rollout,
                evaluations[run].model_copy(update={"temperature": temperature}), seed,
            )
            for number in sweep.chosen(keys, config.iterations)
            for name, settings in environments[run].items()
            for temperature in sweep.temperatures or [config.evaluation.temperature]
            for seed in sweep.seeds
        ]  # fmt: skip
    return Expansion(cells, waiting)


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
                "environments, or sweep over them one by one"
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


def _check_comparable(
    environments: Mapping[str, Mapping[str, EnvironmentSettings]], evaluations: Mapping[str, EvaluationConfig]
) -> None:
    """Check that each name means one panel: success on different initial states cannot be compared."""
    first = next(iter(environments), "")
    for run in environments:
        for name, settings in environments[run].items():
            if settings != environments[first][name]:
                raise ConfigError(
                    f"'{name}' means one environment in run {first} and another in run {run}: "
                    f"{_difference(environments[first][name], settings)}; sweep over these runs one by one"
                )
        for setting, advice in _SIZES.items():
            one, other = (getattr(evaluations[which], setting) for which in (first, run))
            if one != other:
                raise ConfigError(
                    f"evaluation.{setting} is {one} in run {first} and {other} in run {run}, so their panels differ; "
                    f"{advice}sweep over these runs one by one"
                )


def _difference(one: EnvironmentSettings, other: EnvironmentSettings) -> str:
    mine, theirs = one.model_dump(mode="json"), other.model_dump(mode="json")
    return ", ".join(
        f"{name} = {mine.get(name)!r} and {theirs.get(name)!r}"
        for name in {**mine, **theirs}
        if mine.get(name) != theirs.get(name)
    )
