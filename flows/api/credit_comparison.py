"""Estimators of a run's stored update beside the true credit of its turns, `credits`.

run, iteration, credits, methods -> stage `credit_estimates`, computed and stored -> ComparedCredit
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from starpo.flows.api.objectives import ALL, OWN, MeasurableUpdate, measurable_update
from starpo.ragen.config.estimation import estimator_name
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.metrics.credit_comparison import ComparedCredit, compare_credit
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import read_attempts
from starpo.tasks.credit_estimates import credit_estimates

LAMBDAS = (0.0, 0.5, 0.9, 1.0)
"""Lambdas from turn to turn of the generalised advantages that are added where the checkpoint has a critic."""


def compare_estimators(
    store: Store,
    run: str,
    iteration: int,
    credits: pa.Table,
    methods: Sequence[str] = (ALL,),
    overrides: Mapping[str, Any] | None = None,
    placement: ModelPlacement | None = None,
) -> ComparedCredit:
    """Compare the estimators of methods with the true credit of an iteration's turns.

    Methods that differ in their losses alone share an estimator. Beside them are compared what is stored of the turns
    (their rewards, the critic's values, implicit rewards) and, with a critic, generalised advantages by lambda.

    Args:
        store: Where the run is stored; estimates are stored there too.
        run: The run's name.
        iteration: An iteration with an update.
        credits: Dataset `credits` of the iteration.
        methods: As for `compare_objectives`.
        overrides: As for `compare_objectives`.
        placement: Where to learn; None: a learner of this stage alone.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If a method or iteration does not exist, or there is nothing to compare.
    """
    update = measurable_update(store, run, methods, iteration, overrides)
    estimators, users = distinct_estimators(update)
    keys = update.checkpoint, update.first
    work = credit_estimates(update.config, estimators, iteration, *keys, **update.data)
    key = work.carry_out(store, placement)["credit_estimates"]
    estimates = store.read_table("credit_estimates", key)
    turns = read_attempts(store, "turns", update.data, ["trajectory_id", "turn", "behaviour_logprobs"])
    comparison = compare_credit(credits, estimates, turns)
    return ComparedCredit(run, iteration, comparison, users, update.left_out, key)


def distinct_estimators(update: MeasurableUpdate) -> tuple[dict[str, UpdateConfig], dict[str, list[str]]]:
    """Return estimator -> settings of an update by it, and estimator -> the methods that use it."""
    estimators: dict[str, UpdateConfig] = {}
    users: dict[str, list[str]] = {}
    for method, config in update.objectives.items():
        name = estimator_name(config.update)
        estimators.setdefault(name, config.update)
        users.setdefault(name, []).append(method)
    if "critic" in update.models:
        plain = {"update.should_whiten": False, "update.advantage_scale": "none", "update.shaping": []}
        for value in LAMBDAS:
            settings = {"update.advantage": "turn_gae", "update.advantage_options": {}, "update.gamma_turn": 1.0}
            changed = apply_overrides(
                update.objectives.get(OWN, update.config),
                {**settings, **plain, "update.lambda_turn": value},
                f"lambda {value:g}",
            )
            estimators.setdefault(estimator_name(changed.update), changed.update)
    return estimators, users
