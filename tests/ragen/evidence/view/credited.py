"""True and estimated credit of a rollout of the stored run, made up: each turn loses what its number says."""

import pyarrow as pa

from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.datasets import DATASETS
from starpo.schemas.manifest import Stage
from tests.ragen.evidence.report.stored import rows

OTHER = "<b>other</b> gamma=0.5"
CONTINUATIONS = 4


def store_credit(store: Store, iteration: int, used: str) -> str:
    """Store credits of an iteration's rollout, and estimates by two estimators and a critic; return the credits' key.

    The value before turn k is 10 - k^2, and nothing is paid, so that the last turn loses most.
    """
    turns = rows(store, iteration, "rollout", "turns")
    last = {row["trajectory_id"]: row["turn"] for row in sorted(turns, key=lambda row: row["turn"])}
    credits, estimates = [], []
    for number, row in enumerate(turns):
        place = {name: row[name] for name in ("trajectory_id", "group_id", "turn")}
        value, after = (10.0 - (row["turn"] + more) ** 2 for more in (0, 1))
        after = 0.0 if row["turn"] == last[row["trajectory_id"]] else after
        known = {"value": value, "value_se": 0.0, "success": 0.5, "value_after": after, "reward": 0.0}
        counts = {"num_continuations": CONTINUATIONS, "returns": [value] * CONTINUATIONS, "num_tokens": 7}
        gained = {"advantage": after - value, "advantage_se": 0.25, "solver_before": None, "solver_after": None}
        credits.append({**place, "state": f"{number:016x}", **known, **counts, **gained})
        for name, quantity in ((OTHER, "advantage"), (used, "advantage"), ("critic", "value")):
            estimates.append({**place, "estimator": name, "quantity": quantity, "estimate": row["turn"] + 0.5})
    key = store.runs.iterations("hostile")[iteration]["rollout"]["turns"]
    keys = {}
    for kind, table in (("credits", credits), ("credit_estimates", estimates)):
        stage, settings = Stage(name=kind, version=1), {"iteration": iteration} if kind != "credits" else {}
        inputs = {"turns": key}
        facts = Facts(
            key=stage_key(stage, settings, inputs, 0), stage=stage, settings=settings, inputs=inputs, seed=0,
            provenance={}, headline=None,
        )  # fmt: skip
        store.put_table(kind, pa.Table.from_pylist(table, schema=DATASETS[kind].schema), facts)
        keys[kind] = facts.key
    return keys["credits"]
