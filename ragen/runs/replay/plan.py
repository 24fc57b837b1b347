"""Plan of a replay, made and validated before any work: base run, range, settings and starting checkpoint.

    base run, start, stop, overrides -> plan_replay -> ReplayPlan -> flow `replay`

Checkpoint n is the one after n iterations; iterations `start` .. `stop` - 1 lead from checkpoint `start` to `stop`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starpo.ragen.config.load import apply_overrides, recorded_config
from starpo.ragen.config.schedule import without
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.structure import changed_settings
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ArtifactMissingError, ConfigError
from starpo.ragen.store import Store
from starpo.ragen.store.artifacts.keys import name_digits
from starpo.ragen.store.attempts import kind_of
from starpo.ragen.store.keeping.checkpoints import checkpoint_keys
from starpo.ragen.store.records.runs import RunRecord, StageKeys

REPLAYED = ("reward", "filter", "update")
"""Stages, and thus tables of settings, that a replay may change."""

_REASONS = {
    "seed": "it decides which initial states were played and how updates are shuffled, and both are recorded",
    "iterations": "the length of the run is recorded and schedules follow it; choose a range with --from and --to",
    "online_k": "which update used which rollout is recorded",
    "environment": "stored observations and rewards are those of the recorded environment, and a replay plays nothing",
    "policy": "stored tokens were sampled from the recorded model; they say nothing about another one",
    "agent": "stored prompts are in the recorded format; another format gives other tokens, never sampled from",
    "rollout": "stored trajectories were sampled with the recorded temperature, lengths and group sizes",
    "schedule": "changes scheduled in the recorded run are replayed unchanged; override the setting itself",
    "evaluation": "both ends are measured on the recorded panel",
}


@dataclass(frozen=True)
class ReplayPlan:
    """Validated plan of a replay.

    Attributes:
        base: The run whose rollouts are replayed.
        start: The checkpoint to start from, as the number of updates before it.
        stop: The checkpoint to end at.
        base_config: Settings of the base run.
        config: Settings of the replay (the branch).
        changed: Dotted path -> (was, is), for every setting that differs between the two.
        reference: Key of the run's first checkpoint, for the KL divergence.
        iterations: Iteration -> stages recorded by the base run, start .. stop-1.
        checkpoints: n -> key of the base run's checkpoint n, 0 .. stop, kept or not.
        should_update: Whether updates are replayed too; if False, only reward and filter are.
    """

    base: RunRecord
    start: int
    stop: int
    base_config: StarPOConfig
    config: StarPOConfig
    changed: dict[str, tuple[Any, Any]]
    reference: str
    iterations: dict[int, StageKeys]
    checkpoints: dict[int, str]
    should_update: bool = True

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters that identify the replay, for the run's record."""
        changed = {path: {"was": was, "is": now} for path, (was, now) in self.changed.items()}
        extra = {} if self.should_update else {"should_update": False}
        return {"base": self.base.name, "start": self.start, "stop": self.stop, "changed": changed, **extra}

    def name(self, code: Mapping[str, str]) -> str:
        """Name the run: base run, range, and eight digits of a hash of the changes and the code.

        The same replay always has the same name.
        """
        digits = name_digits({"parameters": self.parameters, "code": dict(code)})
        return f"{self.base.name[:80]}-replay-{self.start}-{self.stop}-{digits}"


def plan_replay(
    store: Store,
    run: str,
    start: int = 0,
    stop: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    should_update: bool = True,
) -> ReplayPlan:
    """Plan a replay.

    Args:
        store: Store of the base run.
        run: Name of the base run.
        start: The checkpoint to start from.
        stop: The checkpoint to end at; None for the last one.
        overrides: Dotted path -> value, for settings of reward, filter and update.
        should_update: Whether to replay updates too. If False, only reward and filter are, which need no checkpoint.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If the run is a replay or an import, a setting is unknown, invalid, without effect or of a stage
            that is not replayed, or the range is not in the run or starts where no checkpoint is stored.
        ArtifactMissingError: If an artifact that the base run recorded in the range is not in the store.
        ArtifactDamagedError: If the manifest of such an artifact was changed.
    """
    base = store.runs.get(run)
    if base.flow == "replay":
        origin = base.parameters.get("base", "the run it was made from")
        raise ConfigError(
            f"'{run}' is itself a replay, over the rollouts of '{origin}'; replay that run, with the settings of both"
        )
    if base.flow == "import":
        raise ConfigError(
            f"'{run}' holds imported trajectories, but no checkpoint that an update could start from. For other "
            "rewards or selections import them under another name: `starpo import NAME FILES --set filter.keep=0.5`"
        )
    base_config = recorded_config(base.name, base.config, "Replay it with the release that made it")
    config = _changed_config(base_config, overrides or {})
    if should_update and config.trains_on_credit:
        from starpo.ragen.runs.creditable import credit_fault

        if fault := credit_fault(config):
            raise ConfigError(fault)
    changed = dict(changed_settings(base_config.model_dump(mode="json"), config.model_dump(mode="json")))
    idle = [path for path in changed if path.startswith("update.")] if not should_update else []
    if idle:
        raise ConfigError(f"{idle[0]} has no effect when only reward and filter are replayed; replay the update too")
    recorded = store.runs.iterations(run)
    checkpoints = checkpoint_keys(recorded) or {0: ""}
    num_done = len(checkpoints) - 1
    stop = num_done if stop is None else stop
    if not 0 <= start < stop <= num_done:
        raise ConfigError(
            f"--from {start} --to {stop} is not a range of run '{run}', which has finished "
            f"{counted(num_done, 'iteration')}: expected 0 <= from < to <= {num_done}. Checkpoint n is the one after n "
            "updates"
        )
    plan = ReplayPlan(
        base=base,
        start=start,
        stop=stop,
        base_config=base_config,
        config=config,
        changed=changed,
        reference=checkpoints[0],
        iterations={iteration: recorded[iteration] for iteration in range(start, stop)},
        checkpoints={number: checkpoints[number] for number in range(stop + 1)},
        should_update=should_update,
    )
    _check_stored(store, plan)
    return plan


def _changed_config(config: StarPOConfig, overrides: Mapping[str, Any]) -> StarPOConfig:
    for path in overrides:
        table = path.split(".")[0]
        if table in StarPOConfig.model_fields and table not in REPLAYED:
            reason = _REASONS.get(table, "it is not a setting of a replayed stage")
            raise ConfigError(
                f"{path} cannot be changed in a replay: {reason}. What can be: settings of {', '.join(REPLAYED)}. "
                f"For this one, start a new run: `starpo train` with --set {path}=..."
            )
    # overrides apply to every replayed iteration, whatever the run's own schedule changed
    return apply_overrides(config, {**overrides, "schedule": without(config.schedule, overrides)})


def _check_stored(store: Store, plan: ReplayPlan) -> None:
    """Check that all artifacts are stored, or were and can be derived, before any work."""
    name, start = plan.base.name, plan.checkpoints[plan.start]
    if plan.should_update and not store.was_made("checkpoint", start):
        others = [n for n in range(plan.stop) if store.was_made("checkpoint", plan.checkpoints[n])]
        near = sorted(sorted(others, key=lambda number: abs(number - plan.start))[:4])
        hint = f"nearest that are: {', '.join(map(str, near))}" if near else "nor is an earlier one"
        raise ConfigError(
            f"checkpoint {plan.start} of run '{name}' (checkpoint/{start}) is not in the store {store.url} ({hint}), "
            "so no update can start from it; restore it from a copy, or choose another --from"
        )
    companions = [one for iteration in plan.iterations for one in plan.config.at(iteration).update.companions]
    first = next((one for one in companions if one.is_first_checkpoint), None) if plan.should_update else None
    if first is not None and not store.was_made("checkpoint", plan.reference):
        is_kl = first.name == "reference"
        raise ArtifactMissingError(
            f"{'update.kl_coefficient' if is_kl else 'update.advantage'} needs the first checkpoint of run '{name}' "
            f"as the {first.name}, and checkpoint/{plan.reference} is not in the store {store.url}; restore it from a "
            f"copy{', or set update.kl_coefficient=0' if is_kl else ''}"
        )
    for iteration, stages in plan.iterations.items():
        for stage, kind, key in _needed(stages, plan.should_update):
            if not store.has(kind, key):
                raise ArtifactMissingError(
                    f"iteration {iteration} of run '{name}': {kind}/{key}, which its stage '{stage}' made, "
                    f"is not in the store {store.url}. Restore it from a copy, run `starpo train` again with the "
                    f"settings of that run (it makes what is missing), or replay a range without iteration {iteration}"
                )
            store.manifest(kind, key)


def _needed(stages: StageKeys, should_update: bool) -> Iterable[tuple[str, str, str]]:
    kinds = {"rollout": ["turns"], "reward": ["rewards"], "variance_filter": ["selection"]}
    if should_update:
        kinds["update"] = ["samples", "metrics"]
    return [(name, kind, keys[kind]) for name, keys in stages.items() for kind in kinds.get(kind_of(name), ())]
