"""Made-up true credit of turns, and estimates of it.

`ROWS` -> `CREDITS`, `PLAYED`, `estimates(...)`: three tables that `compare_credit` compares
"""

from typing import Any

import numpy as np
import pyarrow as pa

GROUPS, MEMBERS, TURNS, K = 6, 4, 4, 16


def credit_rows() -> list[dict[str, Any]]:
    """Trajectories whose continuations pay 1 with a chance that each turn draws anew; the last pays by its own."""
    random, rows = np.random.default_rng(5), []
    for group, member in np.ndindex(GROUPS, MEMBERS):
        returns = [(random.random(K) < chance).astype(float).tolist() for chance in random.random(TURNS)]
        for turn, paid in enumerate(returns):
            following = returns[turn + 1] if turn + 1 < TURNS else [float(member % 2)] * K
            pairs = np.array(following) - np.array(paid)
            rows.append(
                {
                    "trajectory_id": f"g{group}/{member}", "group_id": f"g{group}", "turn": turn, "returns": paid,
                    "success": np.mean(paid), "value": np.mean(paid), "value_se": np.std(paid, ddof=1) / K**0.5,
                    "value_after": np.mean(following) if turn + 1 < TURNS else 0.0,
                    "reward": 0.0 if turn + 1 < TURNS else float(member % 2),
                    "advantage": pairs.mean(), "advantage_se": pairs.std(ddof=1) / K**0.5,
                }
            )  # fmt: skip
    return rows


ROWS = credit_rows()
CREDITS = pa.Table.from_pylist(ROWS)
PLAYED = pa.Table.from_pylist([
    {"trajectory_id": row["trajectory_id"], "turn": row["turn"], "behaviour_logprobs": [-0.5, -0.5]} for row in ROWS
])  # fmt: skip


def estimates(**columns: Any) -> pa.Table:
    """What estimators say: of each row, by a function of it; 'critic' estimates values."""
    return pa.Table.from_pylist([
        {
            "estimator": name, "quantity": "value" if name == "critic" else "advantage", "estimate": of(row),
            **{key: row[key] for key in ("trajectory_id", "group_id", "turn")},
        }
        for name, of in columns.items() for row in ROWS if of(row) is not None
    ])  # fmt: skip
