"""A fork: a run's settings with one more change from an iteration on. It is a run like any other.

    run, iteration, overrides -> plan_fork -> Fork: settings with a schedule -> flow `starpo`

Stages before the change keep their keys, so they are found in the store. Resuming, verifying, replaying and comparing
need no special treatment of forks.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from starpo.ragen.config.load import apply_overrides, recorded_config
from starpo.ragen.config.schedule import CHANGEABLE, changed_at
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError, RunStoppedError
from starpo.ragen.core.visible import quoted
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import policies
from starpo.ragen.store.records.run import RunRecord, other_code
from starpo.tasks.loop.plan import Planner
from starpo.tasks.loop.run_code import code_of, settings_digits
from starpo.tasks.loop.training import train


@dataclass(frozen=True)
class Fork:
    """A fork that can be carried out.

    Attributes:
        base: The run that it branches from.
        config: Its settings.
        name: Base, iteration, and eight digits of settings and code, so that the same fork is the same run.
    """

    base: RunRecord
    config: StarPOConfig
    name: str


def plan_fork(store: Store, run: str, iteration: int, overrides: Mapping[str, Any]) -> Fork:
    """Plan a fork and check that it is possible.

    Args:
        store: Where the run is stored.
        run: The run's name.
        iteration: The checkpoint to continue from: updates completed before it. The run's own scheduled changes after
            it are dropped.
        overrides: Dotted path -> value, for settings of rollout, reward, filter and update.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If the run has no such checkpoint, if nothing is changed, if a setting is unknown, invalid or
            cannot change during training, or if this code would not produce the run's checkpoint.
    """
    base = store.runs.get(run)
    if base.flow != "starpo":
        raise ConfigError(
            f"'{run}' was made by the flow '{base.flow}', and only training (`starpo train`) can be forked"
        )
    if not overrides:
        raise ConfigError("a fork that changes nothing is the run itself; say what to change: --set PATH=VALUE")
    config = recorded_config(base.name, base.config, "Fork it with the release that made it")
    checkpoints = policies(store, run)
    last = min(max(checkpoints, default=0), config.iterations - 1)
    if not 1 <= iteration <= last:
        known = f"1 to {last}" if last else "none: one iteration must be finished and another still to come"
        raise ConfigError(f"run '{run}' cannot be forked from checkpoint {iteration}; it can from {known}")
    schedule = changed_at(config.schedule, iteration, overrides)
    base_config, config = config, apply_overrides(config, {"schedule": schedule}, f"a fork of '{run}'")
    if _continue_alike(base_config, config, iteration):
        already = ", ".join(f"{path} = {quoted(value)}" for path, value in overrides.items())
        raise ConfigError(
            f"a fork that changes nothing is the run itself: from iteration {iteration} on, '{run}' already has "
            f"{already}. Give another value, or another setting: --set PATH=VALUE"
        )
    _check_is_found(store, run, iteration, config, checkpoints[iteration])
    return Fork(base, config, f"{run[:80]}-fork-{iteration}-{settings_digits(config)}")


def _continue_alike(base: StarPOConfig, fork: StarPOConfig, iteration: int) -> bool:
    """Whether a run and its fork have the same settings in every iteration from this one on."""
    later = [change.iteration for change in base.schedule if iteration < change.iteration < base.iterations]
    tables = set(CHANGEABLE)
    return all(
        base.at(n).model_dump(include=tables) == fork.at(n).model_dump(include=tables) for n in [iteration, *later]
    )


def _check_is_found(store: Store, run: str, iteration: int, config: StarPOConfig, checkpoint: str) -> None:
    """Check that the fork leads to the run's checkpoint, and that this is stored or can be derived."""
    planner = Planner(store, run, stop=iteration)
    with suppress(RunStoppedError):
        train(planner, config)
    if planner.checkpoints[-1:] != [checkpoint]:
        base = store.runs.get(run)
        raise ConfigError(
            f"this code would not make checkpoint {iteration} of run '{run}' but a different one, so the fork would "
            "not start where the run was. Fork it with the code that made it, or train it again. What differs:\n"
            + other_code(base, base.model_copy(update={"code": code_of(config)}))
        )
    if not store.was_made("checkpoint", checkpoint):
        raise ConfigError(
            f"checkpoint {iteration} of run '{run}' (checkpoint/{checkpoint}) is not in the store {store.url}; restore "
            "it from a copy, or fork from another"
        )
