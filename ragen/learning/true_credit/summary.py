"""What the credits of turns say together: how many, at what cost, and whether they agree with the rollout.

credits, turns -> summarise -> Summary
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from starpo.ragen.agents.evaluation.intervals import Interval, success_interval
from starpo.ragen.learning.true_credit.states import Credited
from starpo.ragen.learning.true_credit.values import mean_with_se


@dataclass(frozen=True)
class Summary:
    """Totals of credited turns.

    Attributes:
        num_trajectories: Credited trajectories.
        num_turns: Their turns.
        num_states: Distinct states before these.
        num_continuations: Continuations played from them.
        num_tokens: Tokens sampled in those.
        num_left_out: Trajectories that an error or a deadline ended, or that were greedy; they are not credited.
        num_truncated: Credited turns in which a limit ended the episode.
        num_without_response: Credited turns without a response, as the context was full.
        num_context_starts: Credited turns, the first ones apart, before which the context was cut or began anew.
        value: Mean of the value before the first turn over trajectories, and its standard error.
        played_return: Mean return of the trajectories as they were played, from the same initial states.
        success: Mean share of successful continuations from before the first turn, over trajectories.
        played_success: Share of the trajectories that succeeded as they were played.
        played_interval: Its 95% interval, over groups.
    """

    num_trajectories: int
    num_turns: int
    num_states: int
    num_continuations: int
    num_tokens: int
    num_left_out: int
    num_truncated: int
    num_without_response: int
    num_context_starts: int
    value: tuple[float, float]
    played_return: float
    success: float
    played_success: float
    played_interval: Interval


def summarise(credits: pa.Table, turns: pa.Table, chosen: Credited) -> Summary:
    """Summarise credits.

    Args:
        credits: Dataset `credits`; not empty.
        turns: Dataset `turns` of the same trajectories.
        chosen: How they were chosen.
    """
    frame, played = pl.DataFrame(credits), pl.DataFrame(turns)
    states = frame.unique("state", maintain_order=True)
    first = frame.filter(turn=0)
    initial = first.group_by("state", maintain_order=True).agg(pl.len(), pl.col("returns").first())
    weights = initial["len"].to_numpy() / first.height
    each = played.group_by("trajectory_id", "group_id", maintain_order=True).agg(pl.col("success").any())
    groups = each.group_by("group_id", maintain_order=True).agg(pl.col("success").sum(), pl.len())
    return Summary(
        num_trajectories=first.height,
        num_turns=frame.height,
        num_states=states.height,
        num_continuations=int(states["num_continuations"].sum()),
        num_tokens=int(states["num_tokens"].sum()),
        num_left_out=chosen.num_errors + chosen.num_greedy,
        num_truncated=int(played["truncated"].sum()),
        num_without_response=played.filter(finish_reason="none").height,
        num_context_starts=played.filter(pl.col("is_context_start") & (pl.col("turn") > 0)).height,
        value=mean_with_se([np.array(one) for one in initial["returns"].to_list()], weights.tolist()),
        played_return=float(frame["reward"].sum()) / first.height,
        success=float(first["success"].mean()),  # type: ignore[arg-type]
        played_success=float(each["success"].mean()),  # type: ignore[arg-type]
        played_interval=success_interval(groups["success"].to_numpy(), groups["len"].to_numpy()),
    )
