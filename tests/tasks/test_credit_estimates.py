"""The stage `credit_estimates`: its table, and that its key and its rows do not know the order of estimators."""

import dataclasses

import numpy as np
import torch

from starpo.flows.presets import preset
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.turn_advantages import TurnAdvantages
from starpo.schemas.validate import validate
from starpo.tasks.credit_estimates import credit_estimates, estimates_table
from tests.examples import example

DATA = {"turns": "t", "rewards": "r", "selection": "s"}
NONE = np.zeros(0)
FIRST = Trajectory("group-00000000/0000", "group-00000000", (), NONE, 0.0, 0.0, NONE, NONE, NONE)
OTHER = dataclasses.replace(FIRST, trajectory_id="group-00000000/0001")


def test_table_holds_estimates_and_rewards() -> None:
    """The reward's component `format` never pays in the example, and is left out."""
    estimates = TurnAdvantages(
        torch.tensor([0, 0, 1]), torch.tensor([0, 2, 1]), torch.tensor([[1.0, torch.nan, 3.0]]),
        {"critic": torch.tensor([4.0, 5.0, 6.0]), "prm": torch.tensor([7.0, 8.0, 9.0])},
    )  # fmt: skip
    table = estimates_table(["grpo"], [FIRST, OTHER], estimates, example("rewards"))
    validate(table, "credit_estimates")
    rows = [(row["estimator"], row["turn"], row["quantity"], row["estimate"]) for row in table.to_pylist()]
    places, advantage = (0, 2, 1), "advantage"
    assert rows == [
        ("grpo", 0, advantage, 1.0), ("grpo", 1, advantage, 3.0),
        *(("implicit_reward", turn, advantage, paid) for turn, paid in zip(places, (7.0, 8.0, 9.0), strict=True)),
        *(("critic", turn, "value", value) for turn, value in zip(places, (4.0, 5.0, 6.0), strict=True)),
        *(("reward", turn, advantage, -0.2) for turn in places),
        *(("reward:environment", turn, advantage, -0.2) for turn in places),
    ]  # fmt: skip
    assert table["trajectory_id"].to_pylist()[:2] == [FIRST.trajectory_id, OTHER.trajectory_id]


def test_order_of_estimators_is_irrelevant() -> None:
    config = preset("smoke")
    named = {"a": config.update, "b": config.update}
    works = [
        credit_estimates(config, estimators, 0, "checkpoint", "first", **DATA)
        for estimators in (named, dict(reversed(named.items())))
    ]
    assert works[0].key == works[1].key
    assert works[0].outputs == ("credit_estimates",)
    assert list(works[0].do.args[0]) == list(works[1].do.args[0])  # type: ignore[attr-defined]
