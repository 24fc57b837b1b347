"""Evaluated turns folded into the dataset `episodes`: one row per episode, with its text but without its tokens.

turns of one cell, states seen in training -> episodes of the cell `<name>`, and those of `<name>/seen`
turns -> dataset `episode_turns`
"""

from collections.abc import Set as AbstractSet

import polars as pl
import pyarrow as pa

from starpo.schemas.datasets import EPISODE_TURNS, EPISODES, SEEN, STATUSES, UNKNOWN_FINISH


def fold_episodes(
    turns: pa.Table, cell: str, temperature: float, seen_digests: AbstractSet[str] = frozenset()
) -> pa.Table:
    """Fold the turns of one evaluated environment.

    Args:
        turns: Dataset `turns`, rows in any order; each trajectory is an episode.
        cell: The name of the environment under evaluation.
        temperature: The sampling temperature.
        seen_digests: Digests of initial states; episodes that start from one of them go to the cell `<cell>/seen`.

    Returns:
        Dataset `episodes`, in order of first appearance of a trajectory in `turns`; empty for empty turns. An episode's
        status is the worst of its turns, in the order of `schemas.datasets.STATUSES`; it succeeds if the goal was
        reached after any turn; its return contains environment rewards only.
    """
    columns = ["trajectory_id", "env", "env_seed", "member", "turn", "initial_state_digest", "observation", "response"]
    columns += ["executed_actions", "action_rewards", "response_ids", "status", "success"]
    frame = pl.DataFrame(turns.select(columns)).with_columns(
        num_actions=pl.col("executed_actions").list.len().cast(pl.Int32),
        num_tokens=pl.col("response_ids").list.len().cast(pl.Int32),
        turn_reward=pl.col("action_rewards").list.sum(),
        actions=pl.col("executed_actions").list.join(" || "),
        severity=pl.col("status").replace_strict(list(STATUSES), range(len(STATUSES)), return_dtype=pl.Int32),
    )
    episodes = frame.group_by("trajectory_id", maintain_order=True).agg(
        pl.col("env", "env_seed", "member", "initial_state_digest").first(),
        pl.col("success").any(),
        pl.col("severity").max(),
        pl.col("actions").sort_by("turn"),
        num_turns=pl.len(),
        num_actions=pl.col("num_actions").sum(),
        num_response_tokens=pl.col("num_tokens").sum(),
        num_format_errors=(pl.col("status") == "format_error").sum(),
        episode_return=pl.col("turn_reward").sum(),
        observations=pl.col("observation").sort_by("turn"),
        responses=pl.col("response").sort_by("turn"),
    )
    episodes = episodes.with_columns(
        cell=pl.when(pl.col("initial_state_digest").is_in(list(seen_digests)))
        .then(pl.lit(cell + SEEN))
        .otherwise(pl.lit(cell)),
        temperature=pl.lit(temperature, pl.Float64),
        status=pl.col("severity").replace_strict(range(len(STATUSES)), list(STATUSES), return_dtype=pl.String),
    )
    schema = EPISODES.schema
    return episodes.select(schema.names).to_arrow().cast(schema)


def episode_turns(turns: pa.Table, *, has_tokens: bool) -> pa.Table:
    """Return the turns of one evaluated environment as they are stored.

    Args:
        turns: Dataset `turns`.
        has_tokens: Whether responses came as tokens (`EngineConfig.gives_tokens`).

    Returns:
        Dataset `episode_turns`. Where log-probs are unknown (a server's model, a player without one), rows have none,
        and finish_reason 'unknown', as imported ones; also no tokens of the response, if it came as text, which was
        tokenised here.
    """
    schema = EPISODE_TURNS.schema
    frame = pl.DataFrame(turns.select(schema.names))
    is_unknown = pl.col("behaviour_logprobs").list.eval(pl.element().is_nan()).list.any()
    hidden = [
        pl.when(is_unknown).then(pl.lit([], dtype=frame.schema[name])).otherwise(pl.col(name)).alias(name)
        for name in ("behaviour_logprobs", *(() if has_tokens else ("response_ids",)))
    ]
    finish = pl.when(is_unknown).then(pl.lit(UNKNOWN_FINISH)).otherwise(pl.col("finish_reason")).alias("finish_reason")
    return frame.with_columns(*hidden, finish).select(schema.names).to_arrow().cast(schema)
