"""The lab of objectives: gradients that other objectives would have had on a run's stored rollouts and checkpoints.

run, iteration, methods -> stage `objectives`, computed and stored -> Lab
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starpo.flows.presets import METHODS, method
from starpo.ragen.config.load import apply_overrides, recorded_config
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.structure import changed_settings
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import ConfigError, one_line
from starpo.ragen.learning.metrics.objectives import NAME, Compared, compared
from starpo.ragen.runs.metrics import stored_metrics
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import recorded_data
from starpo.ragen.store.keeping.checkpoints import policies
from starpo.ragen.store.records.runs import StageKeys
from starpo.tasks.objectives import objectives

OWN = "run"
"""Name of the run's own objective, which is always included."""
ALL = "all"
"""Selects every shipped method."""
_MEASURED = {"teacher": "teacher_logprobs", "top_tokens": "teacher_top_tokens", "credits": "credits"}
"""What objectives need that a stage before the update measures -> kind of its output."""
_STORED = ("rollout", "reward", "filter")
"""Tables of settings whose outcome is stored: a method with other values is measured on the stored data anyway."""


@dataclass(frozen=True)
class Lab:
    """Measurements of several objectives on one update of a run.

    Attributes:
        run: The run's name.
        iteration: The iteration of the update.
        comparison: Comparison of the objectives.
        left_out: Objective -> why it could not be measured.
        kept: Objective -> its settings that differ from those of the stored data, as `path = value`.
    """

    run: str
    iteration: int
    comparison: Compared
    left_out: dict[str, str]
    kept: dict[str, list[str]]


@dataclass(frozen=True)
class MeasurableUpdate:
    """An update of a run, and the objectives that can be measured on it.

    Attributes:
        config: Settings of the iteration.
        iteration: The iteration.
        checkpoint: Key of the policy that was about to be updated.
        first: Key of the run's first checkpoint.
        data: Role -> key of the update's inputs.
        models: Trained models of the checkpoint, 'teacher' if one has scored the rollout, 'top_tokens' if it has said
            what it finds most probable, and 'credits' if the run trained on its credit.
        objectives: Name of an objective -> all settings with its own.
        left_out: Objective -> why it could not be measured.
    """

    config: StarPOConfig
    iteration: int
    checkpoint: str
    first: str
    data: dict[str, str]
    models: frozenset[str]
    objectives: dict[str, StarPOConfig]
    left_out: dict[str, str]


def compare_objectives(
    store: Store,
    run: str,
    methods: Sequence[str],
    iteration: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Lab:
    """Measure objectives on the stored data of one of a run's updates. The run itself does not change.

    Args:
        store: Where the run is stored; results are stored there too.
        run: The run's name.
        methods: Names of methods, or paths of the user's TOML files; 'all' for every shipped method. The run's own
            objective is added.
        iteration: The iteration. None for the last one with an update.
        overrides: Dotted path -> value, applied to every objective's settings, including the run's own.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If a method or iteration does not exist, two methods share a name, or nothing can be measured.
    """
    update = measurable_update(store, run, methods, iteration, overrides)
    configs = {name: changed.update for name, changed in update.objectives.items()}
    now, keys = update.config, (update.checkpoint, update.first)
    work = objectives(now, configs, update.iteration, *keys, **update.data)
    values = stored_metrics(store, work.carry_out(store)["metrics"])
    kept = {name: differing for name, changed in update.objectives.items() if (differing := _differing(now, changed))}
    return Lab(run, update.iteration, compared(values, list(configs)), update.left_out, kept)


def measurable_update(
    store: Store,
    run: str,
    methods: Sequence[str],
    iteration: int | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> MeasurableUpdate:
    """Return an update of a run, and the objectives that can be measured on it; arguments as `compare_objectives`.

    Raises:
        StoreError, ConfigError: As `compare_objectives`.
    """
    record = store.runs.get(run)
    recorded = store.runs.iterations(record.name)
    config = recorded_config(run, record.config, "Measure it with the release that made it")
    named, checkpoints = _named(methods), policies(store, record.name)
    iteration = _iteration(run, recorded, checkpoints, iteration)
    now = config.at(iteration)
    before = [earlier for earlier in recorded if earlier < iteration and "update" in recorded[earlier]]
    models = frozenset(config.at(max(before)).update.optimisers) if before else frozenset()
    data = recorded_data(recorded[iteration])
    models |= {need for need, kind in _MEASURED.items() if kind in data}
    settings, left_out = _measurable(now, named, overrides or {}, models)
    if not settings:
        why = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise ConfigError(f"no objective can be measured: {why}")
    return MeasurableUpdate(now, iteration, checkpoints[iteration], checkpoints[0], data, models, settings, left_out)


def _measurable(
    now: StarPOConfig, named: Mapping[str, Mapping[str, Any]], overrides: Mapping[str, Any], models: frozenset[str]
) -> tuple[dict[str, StarPOConfig], dict[str, str]]:
    """Return the settings of the objectives that the stored data suffice for, and why the others are left out."""
    measurable: dict[str, StarPOConfig] = {}
    left_out: dict[str, str] = {}
    for name, settings in named.items():
        try:
            changed = apply_overrides(now, {**settings, **overrides}, f"objective '{name}'")
            _check_measurable(changed.update, models, has_greedy=now.rollout.num_greedy > 0)
        except ConfigError as error:
            left_out[name] = one_line(error)
        else:
            measurable[name] = changed
    return measurable, left_out


def _named(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return name -> settings of the objectives, the run's own first."""
    named: dict[str, dict[str, Any]] = {OWN: {}}
    for given in [name for one in methods for name in (METHODS.names() if one == ALL else [one])]:
        name = given if given in METHODS.names() else Path(given).stem
        settings = method(given)
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"'{name}' cannot be an objective's name: expected letters, digits, '.', '_' and '-', at most 48"
            )
        if name in named:
            raise ConfigError(
                f"two objectives are called '{name}'; rename a file, or name each once ('{OWN}' is the run's own)"
            )
        named[name] = settings
    return named


def _iteration(run: str, recorded: Mapping[int, StageKeys], checkpoints: Mapping[int, str], wanted: int | None) -> int:
    """Return the iteration to measure, after checking that it has an update."""
    updated = [n for n, stages in recorded.items() if "update" in stages and n in checkpoints]
    if not updated:
        raise ConfigError(
            f"run '{run}' has no update, so other objectives cannot be measured on it; train it first "
            "(imported trajectories have no checkpoint to take a gradient at)"
        )
    if wanted is not None and wanted not in updated:
        raise ConfigError(
            f"run '{run}' has no update at iteration {wanted}; it has {len(updated)}, from {updated[0]} to "
            f"{updated[-1]}"
        )
    return updated[-1] if wanted is None else wanted


def _check_measurable(config: UpdateConfig, models: frozenset[str], *, has_greedy: bool) -> None:
    """Check that stored data, a teacher's among them, and the models of the checkpoint suffice for an objective."""
    if "teacher" in config.needs and "teacher" not in models:
        raise ConfigError("it needs a teacher, and none has scored this rollout: measure it on a run with one")
    if "top_tokens" in config.needs and "top_tokens" not in models:
        raise ConfigError("it needs the teacher's most probable tokens, and none are stored: set teacher.top_k")
    if "credits" in config.needs and "credits" not in models:
        raise ConfigError("it trains on the true credit of turns, which this run did not measure before its update")
    for companion in config.companions:
        if companion.is_trained and companion.name not in models:
            raise ConfigError(
                f"'{config.advantage}' needs a {companion.in_words}, and the checkpoint has none: measure it on a run "
                "whose estimator has one, after its first update"
            )
    if "greedy" in config.needs and not has_greedy:
        raise ConfigError(f"'{config.advantage}' needs a greedy rollout of each group, and none was played")


def _differing(stored: StarPOConfig, changed: StarPOConfig) -> list[str]:
    """Return the settings of an objective that differ from those of the stored data."""
    was, now = (one.model_dump(mode="json", include=set(_STORED)) for one in (stored, changed))
    return [f"{path} = {value}" for path, (_, value) in changed_settings(was, now)]
