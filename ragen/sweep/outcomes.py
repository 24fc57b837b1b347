"""What a stored cell says, prompt by prompt.

episodes, their manifest -> Outcome
"""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from ragen.ablation.evaluations import Prompt
from ragen.store import Store
from schemas.datasets import ERROR_STATUSES


@dataclass(frozen=True)
class Outcome:
    """An evaluated cell.

    Attributes:
        headline: What the stage says of it: name, without its prefix -> value; see `ragen.evaluate.summary`.
        counts: Prompt -> (successes, episodes), without those that ended in an error.
    """

    headline: dict[str, float]
    counts: Mapping[Prompt, tuple[int, int]]


def read_outcome(store: Store, key: str, environment: str) -> Outcome:
    """Read a cell.

    Args:
        store: Where it is.
        key: Of its episodes.
        environment: Name of its panel.

    Raises:
        StoreError: If it is missing or damaged.
    """
    prefix = f"evaluation/{environment}/"
    headline = store.manifest("episodes", key).headline
    columns = ["env_seed", "initial_state_digest", "status", "success"]
    episodes = pl.DataFrame(store.read_table("episodes", key, columns=columns))
    counts = (
        episodes.filter(pl.col("status").is_in(ERROR_STATUSES).not_())
        .group_by("env_seed", "initial_state_digest", maintain_order=True)
        .agg(successes=pl.col("success").sum(), trials=pl.len())
    )
    return Outcome(
        {name.removeprefix(prefix): float(value) for name, value in headline.items() if name.startswith(prefix)},
        {(seed, digest): (successes, trials) for seed, digest, successes, trials in counts.iter_rows()},
    )


def pooled(outcomes: list[Outcome]) -> dict[Prompt, tuple[int, int]]:
    """Counts of several seeds of one policy on one panel, added up prompt by prompt."""
    counts: dict[Prompt, tuple[int, int]] = {}
    for outcome in outcomes:
        for prompt, (successes, trials) in outcome.counts.items():
            so_far = counts.get(prompt, (0, 0))
            counts[prompt] = (so_far[0] + successes, so_far[1] + trials)
    return counts
