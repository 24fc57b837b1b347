"""The lab of objectives: on a run's stored rollouts and checkpoints, where would other objectives have pulled?

run, iterations, methods -> a stage `objectives` an iteration, computed and stored -> Lab
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
"""What the run's own objective is called; it is always among them."""
ALL = "all"
"""Stands for every shipped method."""
_STORED = ("rollout", "reward", "filter")
"""Tables of settings whose outcome is stored: a method that has others is measured with what is there."""


@dataclass(frozen=True)
class Lab:
    """What was measured.

    Attributes:
        run: Its name.
        settings: Iteration -> objective -> settings that it stands for.
        found: Iteration -> the objectives beside each other.
        left_out: Objective -> why it could not be measured, at the first iteration at which it could not.
        kept: Objective -> settings of it that are not what was stored, as `path = value`.
        not_measured: Iteration -> why nothing of it could be.
        num_computed: Stages that were computed for this; they are stored, and found the next time.
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
    """Measure objectives on what a run has stored. Nothing of the run changes.

    Args:
        store: Where it is; what is computed is stored there.
        run: Its name.
        methods: Names of methods, or TOML files of the user's own; 'all': every shipped one. The run's own is added.
        iterations: At which; each is measured by itself. None: at the last that was updated.
        overrides: Dotted path -> value, on top of every objective's settings, the run's own too.
        on_stage: Told how many stages were looked at, and of how many.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If there is no such method or iteration, if two have one name, or if nothing can be measured.
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
    """Settings of the objectives that what is stored suffices for; the lab is told of the others."""
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
    """Name -> settings of the objectives, the run's own first."""
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
    """Those that are asked for, and can be measured."""
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
    """Go on if what is stored, and the models `beside` the policy in the checkpoint, are what an objective needs."""
    for needed, words in (("critic", "critic"), ("prm", "process reward model")):
        if needed in config.needs and needed not in beside:
            raise ConfigError(
                f"'{config.advantage}' needs a {words}, and the checkpoint has none: measure it on a run whose "
                "estimator has one, after its first update"
            )
    if "greedy" in config.needs and not has_greedy:
        raise ConfigError(f"'{config.advantage}' needs a greedy rollout of each group, and none was played")


def _differing(stored: StarPOConfig, own: StarPOConfig) -> list[str]:
    """Settings of an objective that stand for something else than what is stored."""
    was, now = (one.model_dump(mode="json", include=set(_STORED)) for one in (stored, own))
    return [f"{path} = {value}" for path, (_, value) in changed_settings(was, now)]
