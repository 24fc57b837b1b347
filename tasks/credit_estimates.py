"""checkpoint, turns, rewards, selection -> credit_estimates: what estimators say of each turn, without a step."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.update import stored_trajectories
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import read_attempts
from starpo.schemas.datasets import DATASETS
from starpo.schemas.manifest import Stage
from starpo.tasks.objectives import before_update

if TYPE_CHECKING:
    from starpo.ragen.learning.learners.data.trajectories import Trajectory
    from starpo.ragen.learning.learners.turn_advantages import TurnAdvantages

STAGE = Stage(name="credit_estimates", version=1)
CRITIC = "critic"
"""The critic's value before each turn."""
IMPLICIT = "implicit_reward"
"""Sum of a process reward model's rewards of the turn's tokens."""
REWARD = "reward"
"""The turn's reward; `reward:NAME` is one of its components."""


def credit_estimates(
    config: StarPOConfig,
    estimators: Mapping[str, UpdateConfig],
    iteration: int,
    checkpoint: str,
    reference: str,
    **data: str,
) -> Work:
    """Estimate the credit of the turns of an update's trajectories by several estimators.

    What is stored with the turns is among the estimates too: their reward and its components, the values of the
    checkpoint's critic, the implicit rewards of its process reward model.

    Args:
        config: Settings of the iteration.
        estimators: Name of an estimator -> settings of an update by it; at least one.
        iteration: Updates completed before it.
        checkpoint: Key of the policy that is about to be updated. It must have the trained companions that
            the estimators need.
        reference: Key of the run's first checkpoint, the reference of a KL penalty.
        data: Role -> key of the update's inputs: turns, rewards and selection of all attempts.

    Raises:
        LearnerError: When carried out, if there is nothing to train on.
    """
    estimators = dict(sorted(estimators.items()))  # a key does not know their order
    parts = before_update(config, estimators, iteration, checkpoint, reference, data)
    return Work(STAGE, ("credit_estimates",), partial(_estimate, estimators), **parts)


def _estimate(
    estimators: Mapping[str, UpdateConfig], work: Work, store: Store, placement: ModelPlacement
) -> Iterator[Output]:
    from starpo.ragen.learning.learners.measuring import able_to_measure
    from starpo.ragen.learning.learners.turn_advantages import turn_advantages
    from starpo.ragen.runs.update import update_context

    configs = list(estimators.values())
    able, needs = able_to_measure(configs), {need for config in configs for need in config.needs}
    learner = placement.learner.at(store, work.inputs["checkpoint"], able, work.inputs.get("reference"))
    trajectories, kept_share = stored_trajectories(store, needs, work.inputs)
    context = update_context(work.settings, seed=0, kept_share=kept_share)  # no step is taken, so nothing is shuffled
    estimates = turn_advantages(learner, trajectories, context, configs)
    rewards = read_attempts(store, "rewards", work.inputs)
    table = estimates_table(list(estimators), trajectories, estimates, rewards)
    yield Output("credit_estimates", table, is_deterministic=learner.is_deterministic)


def estimates_table(
    names: Sequence[str], trajectories: "Sequence[Trajectory]", estimates: "TurnAdvantages", rewards: pa.Table
) -> pa.Table:
    """Return the dataset `credit_estimates`.

    Args:
        names: Name of each estimator.
        trajectories: The trajectories of the update.
        estimates: What the estimators say of their turns, and columns of companions.
        rewards: Dataset `rewards` of at least these trajectories.
    """
    places = [
        (trajectories[index].trajectory_id, trajectories[index].group_id, turn)
        for index, turn in zip(estimates.trajectory.tolist(), estimates.turn.tolist(), strict=True)
    ]
    by_name = {name: ("advantage", values.tolist()) for name, values in zip(names, estimates.advantages, strict=True)}
    for column, name, quantity in (("prm", IMPLICIT, "advantage"), ("critic", CRITIC, "value")):
        if column in estimates.columns:
            by_name[name] = quantity, estimates.columns[column].tolist()
    paid = _paid(rewards)
    for name in dict.fromkeys(name for at in places for name in paid[at[0], at[2]]):
        values = [paid[at[0], at[2]].get(name, 0.0) for at in places]
        if name == REWARD or any(values):
            by_name[name] = "advantage", values
    rows = [
        {
            "estimator": name, "trajectory_id": trajectory, "group_id": group, "turn": turn, "quantity": quantity,
            "estimate": estimate,
        }
        for name, (quantity, values) in by_name.items()
        for (trajectory, group, turn), estimate in zip(places, values, strict=True)
        if not math.isnan(estimate)  # no token of the turn is credited
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=DATASETS["credit_estimates"].schema)


def _paid(rewards: pa.Table) -> dict[tuple[str, int], dict[str, float]]:
    """Trajectory and turn -> the total reward and, if there are several, its components."""
    paid = {}
    for row in rewards.select(["trajectory_id", "turn", "total", "component_names", "component_values"]).to_pylist():
        parts = dict(zip(row["component_names"], row["component_values"], strict=True))
        of_parts = {f"{REWARD}:{name}": value for name, value in parts.items()} if len(parts) > 1 else {}
        paid[row["trajectory_id"], row["turn"]] = {REWARD: row["total"], **of_parts}
    return paid
