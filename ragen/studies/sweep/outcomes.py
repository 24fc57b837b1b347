"""What a stored cell says, prompt by prompt.

episodes, their manifest -> Outcome
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import polars as pl

from starpo.ragen.agents.evaluation.episodes import SEEN
from starpo.ragen.store import Store
from starpo.ragen.studies.ablation.evaluations import Prompt
from starpo.schemas.datasets import ERROR_STATUSES

Counts = Mapping[Prompt, tuple[int, int]]
"""Prompt -> (successes, episodes)."""


@dataclass(frozen=True)
class Outcome:
    """An evaluated cell.

    Attributes:
        headline: What the stage says of it: name, without its prefix -> value; see `ragen.agents.evaluation.summary`.
        counts: Prompt -> (successes, episodes), without those that ended in an error; prompts in which no training of
            the checkpoint began.
        seen: The same of the prompts in which it began.
    """

    headline: dict[str, float]
    counts: Counts
    seen: Counts = field(default_factory=dict)


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
    columns = ["cell", "env_seed", "initial_state_digest", "status", "success"]
    episodes = pl.DataFrame(store.read_table("episodes", key, columns=columns))
    counts = (
        episodes.filter(pl.col("status").is_in(ERROR_STATUSES).not_())
        .group_by(pl.col("cell").str.ends_with(SEEN), "env_seed", "initial_state_digest", maintain_order=True)
        .agg(successes=pl.col("success").sum(), trials=pl.len())
    )
    parts: tuple[dict[Prompt, tuple[int, int]], ...] = ({}, {})
    for is_seen, seed, digest, successes, trials in counts.iter_rows():
        parts[is_seen][seed, digest] = (successes, trials)
    return Outcome(
        {name.removeprefix(prefix): float(value) for name, value in headline.items() if name.startswith(prefix)}, *parts
    )


def pooled(several: Iterable[Counts]) -> dict[Prompt, tuple[int, int]]:
    """Counts of several seeds of one policy on one panel, added up prompt by prompt."""
    counts: dict[Prompt, tuple[int, int]] = {}
    for one in several:
        for prompt, (successes, trials) in one.items():
            so_far = counts.get(prompt, (0, 0))
            counts[prompt] = (so_far[0] + successes, so_far[1] + trials)
    return counts
