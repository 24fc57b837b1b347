"""From turns to the dataset `rewards`: components, totals, trajectory returns and normalised returns.

    turns --components--> total --sum over a trajectory--> trajectory_return --normalisation--> normalised_return

Trajectories with an error status ('env_error', 'timeout') and greedy ones keep their rows, marked by `is_valid`, and
are in no statistic: an environment's failure is not an agent's score, and a baseline no member of its group.
"""

import numpy as np
import polars as pl
import pyarrow as pa

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.registry import REWARDS, load
from starpo.schemas.datasets import DOUBLES, ERROR_STATUSES, TEXTS
from starpo.schemas.datasets import REWARDS as REWARDS_DATASET

ZERO_VARIANCE_STD = 1e-6
"""A standard deviation of returns up to this is rounding: the returns are taken as equal."""


def compute_rewards(turns: pa.Table, config: RewardConfig) -> pa.Table:
    """Pay stored turns.

    Args:
        turns: Dataset `turns`, rows in any order.
        config: The components' settings and the normalisation.

    Returns:
        Dataset `rewards`, a row for every row of `turns` in the same order; empty for empty turns.
    """
    components = {name: load(REWARDS, name)(turns, config) for name in config.components}
    for name, values in components.items():
        assert values.shape == (turns.num_rows,), f"reward component '{name}' must give one number a turn"
    values_by_turn = np.column_stack(list(components.values()))
    frame = pl.DataFrame(turns.select(["trajectory_id", "group_id", "turn", "status", "origin"])).with_columns(
        pl.Series("total", values_by_turn.sum(axis=1))
    )
    frame = frame.with_columns(
        trajectory_return=pl.col("total").sum().over("trajectory_id"),
        is_valid=(pl.col("status").is_in(ERROR_STATUSES) | (pl.col("origin") == "greedy"))
        .not_()
        .all()
        .over("trajectory_id"),
    ).with_columns(normalised_return=_normalised_return(config))
    columns = {
        "component_names": _repeated(list(components), turns.num_rows),
        "component_values": _lists(pa.array(values_by_turn.ravel()), turns.num_rows, DOUBLES),
        **{name: frame[name].to_arrow() for name in frame.columns},
    }
    schema = REWARDS_DATASET.schema
    return pa.Table.from_arrays([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


def _normalised_return(config: RewardConfig) -> pl.Expr:
    """The trajectory's return, shifted and scaled as configured.

    Mean and standard deviation are over valid trajectories, each counted once however many turns it has, of
    the group or of the whole table. An invalid trajectory gets 0, except without normalisation. 'mean_std' gives 0
    where the standard deviation is at most `ZERO_VARIANCE_STD`.
    """
    if config.normalisation == "none":
        return pl.col("trajectory_return")
    is_counted = pl.col("is_valid") & pl.col("trajectory_id").is_first_distinct()
    counted = pl.col("trajectory_return").filter(is_counted)
    mean, std = counted.mean(), counted.std(ddof=config.std_ddof)
    if config.normalisation_scope == "group":
        mean, std = mean.over("group_id"), std.over("group_id")
    normalised = pl.col("trajectory_return") - mean
    if config.normalisation == "mean_std":
        normalised = pl.when(std > ZERO_VARIANCE_STD).then(normalised / std).otherwise(0.0)
    return pl.when("is_valid").then(normalised).otherwise(0.0)


def _repeated(names: list[str], num_rows: int) -> pa.Array:
    return _lists(pa.array(names, pa.string()).take(np.tile(np.arange(len(names)), num_rows)), num_rows, TEXTS)


def _lists(values: pa.Array, num_rows: int, list_type: pa.DataType) -> pa.Array:
    """Cut `values` into `num_rows` lists of equal length."""
    length = len(values) // max(num_rows, 1)
    offsets = np.arange(num_rows + 1, dtype=np.int32) * length
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=list_type)
