"""The metrics of an evaluation: `evaluation/<cell>/...` from the dataset `episodes`; and totals to be added up."""

import polars as pl
import pyarrow as pa

from starpo.ragen.agents.evaluation.intervals import pass_at_k, success_interval
from starpo.schemas.datasets import ERROR_STATUSES

SUMMED = ("cell", "status", "num_turns", "num_format_errors", "num_response_tokens", "episode_return")
"""Columns of `episodes` that returns and totals are made of."""
COST = "engine_cost"
"""Metric of a cell that an engine with prices has: what its responses cost."""


def total_episodes(episodes: pa.Table) -> dict[str, float]:
    """Add up episodes, so that totals of several evaluations can be added and divided.

    Args:
        episodes: Dataset `episodes`, at least its columns `SUMMED`; every cell.

    Returns:
        `num_errors`, episodes that ended in an environment error or at a deadline; over the others: `num_episodes`,
        `num_truncated` (the context was full), `num_turns`, `num_format_errors` (turns), `num_response_tokens`.
    """
    frame = pl.DataFrame(episodes.select(SUMMED))
    valid = frame.filter(pl.col("status").is_in(ERROR_STATUSES).not_())
    return {
        "num_errors": frame.height - valid.height,
        "num_episodes": valid.height,
        "num_truncated": valid.filter(status="truncated").height,
        **{name: int(valid[name].sum()) for name in ("num_turns", "num_format_errors", "num_response_tokens")},
    }


def summarise(episodes: pa.Table) -> dict[str, float]:
    """Summarise every cell of a table of episodes.

    For a cell with several environments (a mixture), each environment is also summarised separately, as
    `evaluation/<cell>/<tag>/...`. Episodes that ended in an environment error or at a deadline are counted in
    `num_errors` and in no metric but `num_episodes`.

    Over the others: `success`, the share that succeeds, with its 95% interval `success_low`, `success_high`
    (`intervals.success_interval`); `pass_at_<k>` for k = 1, 2,
    4, ... up to the smallest number of episodes of a prompt; `return_mean`; `turns_mean`, `actions_mean` (per episode);
    `response_length_mean` (tokens; denominator: turns); `format_ok` (share of turns without a malformed response).

    Args:
        episodes: Dataset `episodes`.

    Returns:
        Name -> finite value. A cell in which every episode ended in an error has only `num_episodes` and `num_errors`;
        empty without episodes.
    """
    values: dict[str, float] = {}
    columns = ["cell", "env", "env_seed", "status", "success", "num_turns", "num_actions", "num_response_tokens"]
    frame = pl.DataFrame(episodes.select([*columns, "num_format_errors", "episode_return"]))
    for (cell,), rows in frame.group_by("cell", maintain_order=True):
        parts = {str(cell): rows}
        if rows["env"].n_unique() > 1:
            parts |= {f"{cell}/{env}": rows.filter(env=env) for env in sorted(rows["env"].unique())}
        for name, of in parts.items():
            values |= {f"evaluation/{name}/{metric}": float(value) for metric, value in _cell_metrics(of).items()}
    return values


def _cell_metrics(episodes: pl.DataFrame) -> dict[str, float]:
    valid = episodes.filter(pl.col("status").is_in(ERROR_STATUSES).not_())
    counts: dict[str, float] = {"num_episodes": episodes.height, "num_errors": episodes.height - valid.height}
    if valid.is_empty():
        return counts
    prompts = valid.group_by("env_seed", maintain_order=True).agg(trials=pl.len(), successes=pl.col("success").sum())
    successes, trials = prompts["successes"].to_numpy(), prompts["trials"].to_numpy()
    low, high = success_interval(successes, trials)
    powers = [1 << n for n in range(int(trials.min()).bit_length())]
    num_turns = int(valid["num_turns"].sum())
    return counts | {
        "success": float(successes.sum() / trials.sum()),
        "success_low": low,
        "success_high": high,
        **{f"pass_at_{k}": pass_at_k(trials, successes, k) for k in powers},
        "return_mean": float(valid["episode_return"].to_numpy().mean()),
        "turns_mean": num_turns / valid.height,
        "actions_mean": int(valid["num_actions"].sum()) / valid.height,
        "response_length_mean": int(valid["num_response_tokens"].sum()) / num_turns,
        "format_ok": 1 - int(valid["num_format_errors"].sum()) / num_turns,
    }
