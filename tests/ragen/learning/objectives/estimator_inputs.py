"""Inputs of advantage estimators: from short tables, or drawn by hypothesis."""

import torch
from hypothesis import strategies as st

from starpo.ragen.learning.objectives.columns import ScoredInputs

finite = st.floats(-10, 10, width=32)


def inputs_of(rewards, values=None, *, turns=None, mask=None, returns=None, groups=None, **discounts) -> ScoredInputs:
    rewards_BT = torch.tensor(rewards, dtype=torch.float64)
    mask_BT = torch.ones_like(rewards_BT, dtype=torch.bool) if mask is None else torch.tensor(mask)
    return ScoredInputs(
        returns_B=rewards_BT.sum(1) if returns is None else torch.tensor(returns, dtype=torch.float64),
        group_B=torch.zeros(len(rewards), dtype=torch.int64) if groups is None else torch.tensor(groups),
        rewards_BT=rewards_BT,
        mask_BT=mask_BT,
        turn_BT=torch.zeros_like(rewards_BT, dtype=torch.int64) if turns is None else torch.tensor(turns),
        values_BT=None if values is None else torch.tensor(values, dtype=torch.float64),
        **discounts,
    )


@st.composite
def random_inputs(draw) -> ScoredInputs:
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 8))

    def table(element):
        return [[draw(element) for _ in range(columns)] for _ in range(rows)]

    mask = table(st.booleans())
    turns = [[sum(row[: t + 1]) for t in range(columns)] for row in table(st.integers(0, 1))]
    rewards = [
        [r if m else 0.0 for r, m in zip(*rows_, strict=True)] for rows_ in zip(table(finite), mask, strict=True)
    ]
    discounts = {name: draw(st.floats(0, 1)) for name in ("gamma", "gae_lambda", "gamma_turn", "lambda_turn")}
    groups = [draw(st.integers(0, 1)) for _ in range(rows)]
    states = [[draw(st.integers(0, 2)) for _ in range(columns + 1)] for _ in range(rows)]
    logprobs = torch.tensor(table(st.floats(-5, -0.01)), dtype=torch.float64)
    others = torch.tensor(table(st.floats(0.01, 1)), dtype=torch.float64)  # contribution of the other tokens
    marks = [[float(draw(st.booleans())) for _ in range(columns + 1)] for _ in range(rows)]
    return inputs_of(
        rewards, table(finite), turns=turns, mask=mask, groups=groups, **discounts,
        state_BK=torch.tensor(states),
        marks_BK=torch.tensor(marks),
        is_answer_BT=torch.tensor(table(st.booleans())),
        greedy_returns_B=torch.tensor([draw(finite) for _ in range(rows)], dtype=torch.float64),
        logprobs_BT=logprobs,
        implicit_rewards_BT=torch.tensor(table(finite), dtype=torch.float64),
        component_returns={
            name: torch.tensor([float(draw(st.integers(-3, 3))) for _ in range(rows)], dtype=torch.float64)
            for name in ("environment", "format")
        },
        collision_BT=(2 * logprobs).exp() + others * (1 - logprobs.exp()) ** 2,
    )  # fmt: skip
