"""From turns to the dataset `rewards`: components, totals, trajectory returns and normalised returns.

    turns --components--> total --sum over a trajectory--> trajectory_return --normalisation--> normalised_return

Trajectories with an error status ('env_error', 'timeout') and greedy ones keep their rows, marked by `is_valid`, but
count in no statistic: the former do not measure the agent, the latter serve as baselines and are not group members.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa

from starpo.ragen.config.plugin_calls import plugin_call
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.errors import RewardError, StarPOError
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.core.lookup import load, needs
from starpo.ragen.core.registry import REWARDS
from starpo.schemas.datasets import DOUBLES, ERROR_STATUSES, TEXTS
from starpo.schemas.datasets import REWARDS as REWARDS_DATASET
from starpo.schemas.rules import ZERO_VARIANCE_STD

CLIP_BOUNDS = (-1.0, 3.0)
"""Bounds of returns normalised by 'asymmetric_clip' (RAGEN-2)."""

CLIP_STD_OFFSET = 1e-6
"""Added to the standard deviation in 'asymmetric_clip' (RAGEN-2); the quotient is clipped to `CLIP_BOUNDS`."""

MAX_REWARD = 1e15
"""Largest absolute value of a component, so that squared returns stay below the 3e38 of the learner's float32."""


def compute_rewards(
    turns: pa.Table, config: RewardConfig, store: object = None, types: Mapping[str, str] | None = None
) -> pa.Table:
    """Compute the rewards of stored turns.

    Args:
        turns: Dataset `turns`, rows in any order.
        config: Settings of the components and the normalisation.
        store: The run's store, for components that need it.
        types: Tag in the column `env` -> type of that environment, which replaces the tag for components. None if the
            column holds types.

    Returns:
        Dataset `rewards`, one row per row of `turns` in the same order; empty for empty turns.

    Raises:
        RewardError: If a component fails; see `component_values`.
    """
    typed = turns if types is None else _typed(turns, types)
    components = {name: component_values(name, typed, config, store) for name in config.components}
    values_by_turn = np.column_stack(list(components.values()))
    frame = pl.DataFrame(turns.select(["trajectory_id", "group_id", "env", "turn", "status", "origin"])).with_columns(
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


def _typed(turns: pa.Table, types: Mapping[str, str]) -> pa.Table:
    names = pa.array([types.get(tag, tag) for tag in turns["env"].to_pylist()], pa.string())
    return turns.set_column(turns.schema.get_field_index("env"), "env", names)


def component_values(name: str, turns: pa.Table, config: RewardConfig, store: object = None) -> np.ndarray:
    """Compute one component of the reward.

    Args:
        name: A name in `ragen.core.registry.REWARDS`, or `module:attribute`.
        turns: Dataset `turns`, with the type of each row's environment in `env`.
        config: Settings, passed to the component.
        store: Passed to a component that needs it.

    Returns:
        float64 [rows], at most `MAX_REWARD` in size.

    Raises:
        RewardError: If the component raises anything, or returns anything but one such number a turn.
        StarPOError: One that the component raises itself, such as a server that cannot be reached.
    """
    pay = load(REWARDS, name)
    needed = (store,) if "store" in needs(REWARDS, name) else ()
    assert None not in needed, f"reward component '{name}' needs the store"
    target = REWARDS[name]
    place = f"reward component '{name}'" if name == target else f"reward component '{name}' ({target})"
    try:
        with plugin_call("reward component", REWARDS, name):
            paid = pay(turns, _with_options(name, config), *needed)
        # None is no number, though numpy reads one alone as NaN
        values = None if paid is None else np.asarray(paid, dtype=np.float64)
    except StarPOError:
        raise
    except FOREIGN as error:  # third-party code may raise anything
        raise RewardError(
            f"{place} failed on {turns.num_rows} turns: {describe_fault(error, target.partition(':')[0])}. It receives "
            "the columns of dataset `turns` (docs/extend.md) and returns one number per turn"
        ) from error
    if values is None or values.shape != (turns.num_rows,):
        given = "None" if values is None else f"{type(paid).__name__} of shape {list(values.shape)}"
        raise RewardError(f"{place} returned {given}, expected one number for each of {turns.num_rows} turns")
    bad = np.flatnonzero(~(np.abs(values) <= MAX_REWARD))
    if bad.size:
        row = {column: turns[column][int(bad[0])].as_py() for column in ("trajectory_id", "turn", "status")}
        raise RewardError(
            f"{place} returned {values[bad[0]]} for {bad.size} of {turns.num_rows} turns, the first turn "
            f"{row['turn']} (status {row['status']}) of {row['trajectory_id']}; expected numbers between "
            f"-{MAX_REWARD:g} and {MAX_REWARD:g}"
        )
    return values


def _with_options(name: str, config: RewardConfig) -> RewardConfig:
    """Return the settings with a component's own options beside those by component: `config.options["price"]`, as every
    other part of one's own reads them."""
    options = config.options.get(name, {})
    return config.model_copy(update={"options": {**config.options, **options}}) if options else config


def _normalised_return(config: RewardConfig) -> pl.Expr:
    """Return the expression of the trajectory's return, shifted, scaled and clipped as configured.

    Mean and standard deviation are over the valid trajectories of the group, of the same environment, or of the whole
    table. Each trajectory counts once, whatever its number of turns. An invalid trajectory gets 0, except without
    normalisation. Normalisations by the standard deviation give 0 if that is at most `ZERO_VARIANCE_STD`.
    """
    if config.normalisation == "none":
        return pl.col("trajectory_return")
    is_clipped = config.normalisation == "asymmetric_clip"
    is_counted = pl.col("is_valid") & pl.col("trajectory_id").is_first_distinct()
    counted = pl.col("trajectory_return").filter(is_counted)
    mean, std = counted.mean(), counted.std(ddof=1 if is_clipped else config.std_ddof)
    if config.normalisation_scope != "batch":
        column = {"group": "group_id", "environment": "env"}[config.normalisation_scope]
        mean, std = mean.over(column), std.over(column)
    normalised = pl.col("trajectory_return") - mean
    if config.normalisation != "mean":
        scaled = (normalised / (std + CLIP_STD_OFFSET)).clip(*CLIP_BOUNDS) if is_clipped else normalised / std
        normalised = pl.when(std > ZERO_VARIANCE_STD).then(scaled).otherwise(0.0)
    return pl.when("is_valid").then(normalised).otherwise(0.0)


def _repeated(names: list[str], num_rows: int) -> pa.Array:
    return _lists(pa.array(names, pa.string()).take(np.tile(np.arange(len(names)), num_rows)), num_rows, TEXTS)


def _lists(values: pa.Array, num_rows: int, list_type: pa.DataType) -> pa.Array:
    """Cut `values` into `num_rows` lists of equal length."""
    length = len(values) // max(num_rows, 1)
    offsets = np.arange(num_rows + 1, dtype=np.int32) * length
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=list_type)
