"""The lab of objectives: gradients that other objectives would have had on a run's stored rollouts and checkpoints.

run, iterations, methods -> one stage `objectives` per iteration, computed and stored -> Lab
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from starpo.flows.presets import METHODS, method
from starpo.ragen.config.load import apply_overrides, recorded_config
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.structure import changed_settings
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import ConfigError, StarPOError, one_line
from starpo.ragen.evidence.diagnostics.objectives import NAME, Compared, compared
from starpo.ragen.evidence.diagnostics.series import stored_metrics
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import recorded_data
from starpo.ragen.store.keeping.checkpoints import policies
from starpo.ragen.store.records.runs import StageKeys
from starpo.ragen.work import Work
from starpo.tasks.objectives import objectives

OWN = "run"
"""Name of the run's own objective, which is always included."""
ALL = "all"
"""Selects every shipped method."""
_STORED = ("rollout", "reward", "filter")
"""Tables of settings whose outcome is stored: a method with other values is measured on the stored data anyway."""


@dataclass(frozen=True)
class Lab:
    """Measurements of several objectives on one run.

    Attributes:
        run: The run's name.
        settings: Iteration -> objective -> its settings.
        found: Iteration -> comparison of the objectives.
        left_out: Objective -> why it could not be measured, at the first iteration where that was the case.
        kept: Objective -> its settings that differ from those of the stored data, as `path = value`.
        not_measured: Iteration -> why it could not be measured at all.
        num_computed: Number of stages computed for this; they are stored and reused the next time.
    """

    run: str
    settings: dict[int, dict[str, StarPOConfig]] = field(default_factory=dict)
    found: dict[int, Compared] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    kept: dict[str, list[str]] = field(default_factory=dict)
    not_measured: dict[int, str] = field(default_factory=dict)
    num_computed: int = 0


def compare_objectives(
    store: Store,
    run: str,
    methods: Sequence[str],
    iterations: Sequence[int] | None = None,
    overrides: Mapping[str, Any] | None = None,
    on_stage: Callable[[int, int], None] = lambda done, total: None,
) -> Lab:
    """Measure objectives on a run's stored data. The run itself does not change.

    Args:
        store: Where the run is stored; results are stored there too.
        run: The run's name.
        methods: Names of methods, or paths of the user's TOML files; 'all' for every shipped method. The run's own
            objective is added.
        iterations: Iterations, each measured separately. None for the last one with an update.
        overrides: Dotted path -> value, applied to every objective's settings, including the run's own.
        on_stage: Called with the number of stages done and their total.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If a method or iteration does not exist, two methods share a name, or nothing can be measured.
    """
    record = store.runs.get(run)
    recorded = store.runs.iterations(record.name)
    config = recorded_config(run, record.config, "Measure it with the release that made it")
    named, checkpoints = _named(methods), policies(store, record.name)
    lab, works = Lab(run), {}
    for iteration in _iterations(run, recorded, checkpoints, iterations):
        now = config.at(iteration)
        before = [earlier for earlier in recorded if earlier < iteration and "update" in recorded[earlier]]
        beside = config.at(max(before)).update.needs & {"critic", "prm"} if before else frozenset()
        settings = _measurable(now, named, overrides or {}, beside, lab)
        if settings:
            lab.settings[iteration] = settings
            configs = {name: own.update for name, own in settings.items()}
            data = recorded_data(recorded[iteration])
            work = objectives(now, configs, iteration, checkpoints[iteration], checkpoints[0], **data)
            works[iteration] = work, list(configs)
    if not works:
        why = "; ".join(f"{name}: {reason}" for name, reason in lab.left_out.items())
        raise ConfigError(f"no objective can be measured: {why}")
    return _carried_out(store, lab, works, on_stage)


def _measurable(
    now: StarPOConfig,
    named: Mapping[str, Mapping[str, Any]],
    overrides: Mapping[str, Any],
    beside: frozenset[str],
    lab: Lab,
) -> dict[str, StarPOConfig]:
    """Return the settings of the objectives that the stored data suffice for; the others are noted in the lab."""
    found: dict[str, StarPOConfig] = {}
    for name, settings in named.items():
        try:
            own = apply_overrides(now, {**settings, **overrides}, f"objective '{name}'")
            _check_measurable(own.update, beside, has_greedy=now.rollout.num_greedy > 0)
        except ConfigError as error:
            lab.left_out.setdefault(name, one_line(error))
            continue
        found[name] = own
        if differing := _differing(now, own):
            lab.kept[name] = differing
    return found


def _carried_out(
    store: Store, lab: Lab, works: Mapping[int, tuple[Work, list[str]]], on_stage: Callable[[int, int], None]
) -> Lab:
    num_computed = 0
    for number, (iteration, (work, names)) in enumerate(works.items()):
        on_stage(number, len(works))
        try:
            num_computed += not work.is_stored(store)
            values = stored_metrics(store, work.carry_out(store)["metrics"])
        except StarPOError as error:
            lab.not_measured[iteration] = one_line(error)
            continue
        lab.found[iteration] = compared(values, names)
    if not lab.found:
        why = next(iter(lab.not_measured.values()))
        raise ConfigError(f"nothing of run '{lab.run}' could be measured: {why}")
    return replace(lab, num_computed=num_computed)


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


def _iterations(
    run: str, recorded: Mapping[int, StageKeys], checkpoints: Mapping[int, str], wanted: Sequence[int] | None
) -> list[int]:
    """Return the requested iterations, after checking that they can be measured."""
    updated = [n for n, stages in recorded.items() if "update" in stages and n in checkpoints]
    if not updated:
        raise ConfigError(
            f"run '{run}' has no update, so other objectives cannot be measured on it; train it first "
            "(imported trajectories have no checkpoint to take a gradient at)"
        )
    if wanted is None:
        return updated[-1:]
    for iteration in wanted:
        if iteration not in updated:
            raise ConfigError(
                f"run '{run}' has no update at iteration {iteration}; it has {len(updated)}, from {updated[0]} to "
                f"{updated[-1]}"
            )
    return sorted(set(wanted))


def _check_measurable(config: UpdateConfig, beside: frozenset[str], *, has_greedy: bool) -> None:
    """Check that stored data, and the models `beside` the policy in the checkpoint, suffice for an objective."""
    for needed, words in (("critic", "critic"), ("prm", "process reward model")):
        if needed in config.needs and needed not in beside:
            raise ConfigError(
                f"'{config.advantage}' needs a {words}, and the checkpoint has none: measure it on a run whose "
                "estimator has one, after its first update"
            )
    if "greedy" in config.needs and not has_greedy:
        raise ConfigError(f"'{config.advantage}' needs a greedy rollout of each group, and none was played")


def _differing(stored: StarPOConfig, own: StarPOConfig) -> list[str]:
    """Return the settings of an objective that differ from those of the stored data."""
    was, now = (one.model_dump(mode="json", include=set(_STORED)) for one in (stored, own))
    return [f"{path} = {value}" for path, (_, value) in changed_settings(was, now)]
