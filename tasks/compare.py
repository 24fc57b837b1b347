"""Two updates on one rollout -> metrics of what a replay changed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.runs.metrics import stored_metrics
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Keys, Output, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of, read_attempts
from starpo.schemas.manifest import Stage

STAGE = Stage(name="compare", version=2)


@dataclass(frozen=True)
class Side:
    """One of the two updates.

    Attributes:
        config: Its settings.
        data: Role -> key of its training data: turns, rewards and selection of every attempt.
        before: Key of the checkpoint that it started from.
        update: Kind -> key of its outputs; None if there was no update.
    """

    config: UpdateConfig
    data: Keys
    before: str
    update: Keys | None


def compare(store: Store, context: UpdateContext, base: Side, branch: Side, reference: str) -> Work:
    """Compare the branch's update with the base's.

    Unless both sides have an update, only the filters are compared. Cosines are omitted if a checkpoint that they need
    was not kept, unless they were measured while it was still stored.

    Args:
        store: Looked up for checkpoints and existing results.
        context: Position of both updates in the run.
        base: The run's update.
        branch: The replay's update.
        reference: Key of the run's first checkpoint.
    """
    inputs = {role: key for role, key in base.data.items() if kind_of(role) == "turns"}
    for name, side in (("base", base), ("branch", branch)):
        update_keys = side.update or {}
        inputs |= {f"{name}_{role}": key for role, key in side.data.items() if kind_of(role) != "turns"}
        inputs |= {f"{name}_{kind}": key for kind, key in update_keys.items()}
        inputs |= {f"{name}_before": side.before} if update_keys else {}
    if any(side.update and side.config.needs_first_checkpoint for side in (base, branch)):
        inputs["reference"] = reference
    settings = {"iteration": context.iteration, "has_weights": True}
    work = Work(STAGE, ("metrics",), partial(_compare, context, base, branch, reference), settings, inputs)
    if (_has_weights(store, base) and _has_weights(store, branch)) or work.is_stored(store):
        return work
    return replace(work, settings=settings | {"has_weights": False})


def _has_weights(store: Store, side: Side) -> bool:
    """Whether the checkpoints before and after the update are stored."""
    after = (side.update or {}).get("checkpoint")
    return after is not None and store.has("checkpoint", side.before) and store.has("checkpoint", after)


def _compare(
    context: UpdateContext,
    base: Side,
    branch: Side,
    reference: str,
    work: Work,
    store: Store,
    placement: ModelPlacement,
) -> Iterator[Output]:
    from starpo.ragen.learning.metrics.table import metrics_table
    from starpo.ragen.runs.replay.comparison import beside, compare_advantages, compare_directions, compare_groups

    values = compare_groups(*(read_attempts(store, "selection", side.data) for side in (base, branch)))
    if base.update and branch.update:
        values |= compare_advantages(
            *(store.read_table("samples", side.update["samples"]) for side in (base, branch) if side.update)
        )
        values |= beside(*(stored_metrics(store, update["metrics"]) for update in (base.update, branch.update)))
    if work.settings["has_weights"]:
        values |= _compare_gradients(store, placement, context, base, branch, reference)
        values |= compare_directions("weight_change", _weight_changes(store, base, branch))
    named = {f"replay/{name}": value for name, value in values.items()}
    yield Output("metrics", metrics_table(context.iteration, STAGE.name, named))


def _compare_gradients(
    store: Store, placement: ModelPlacement, context: UpdateContext, base: Side, branch: Side, reference: str
) -> dict[str, float]:
    """Compare both gradients at the base's checkpoint; identical data and settings need no computation."""
    from starpo.ragen.learning.learners.measuring import able_to_measure, initial_gradient
    from starpo.ragen.runs.replay.comparison import compare_directions
    from starpo.ragen.runs.update import stored_trajectories

    if (base.data, base.config) == (branch.data, branch.config):
        return {"gradient_cosine": 1.0, "gradient_norm_ratio": 1.0}

    def gradient(side: Side) -> np.ndarray:
        trajectories, kept_share = stored_trajectories(
            store, side.config.needs, {"checkpoint": base.before, **side.data}
        )
        needed = reference if side.config.needs_first_checkpoint else None
        learner = placement.learner.at(store, base.before, able_to_measure([side.config]), needed)
        return initial_gradient(learner, trajectories, replace(context, kept_share=kept_share)).numpy()

    return compare_directions("gradient", [(gradient(base), gradient(branch))])


def _weight_changes(store: Store, base: Side, branch: Side) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from starpo.ragen.runs.replay.weights import weight_changes
    from starpo.ragen.runs.stored_policy import complete_folder

    folders = [
        (complete_folder(store, side.before), complete_folder(store, side.update["checkpoint"]))
        for side in (base, branch)
        if side.update
    ]
    return weight_changes(*folders)
