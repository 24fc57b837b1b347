"""What a run's stored evaluations say, prompt by prompt.

run -> its evaluate stages -> episodes -> RunEvaluations
"""

from dataclasses import dataclass, field

import polars as pl

from starpo.ragen.agents.evaluation.episodes import SEEN
from starpo.ragen.store import Store
from starpo.schemas.datasets import ERROR_STATUSES

Prompt = tuple[int, str]
"""A prompt of a panel: its environment seed and the digest of its initial state."""
Rates = dict[Prompt, float]
"""Prompt -> share of its episodes that succeed; a prompt whose episodes all ended in an error is absent."""

_STAGE = "evaluate:"


@dataclass(frozen=True)
class RunEvaluations:
    """A run's success.

    Attributes:
        panels: Panel -> iteration -> success by prompt; in ascending order of iterations.
    """

    panels: dict[str, dict[int, Rates]] = field(default_factory=dict)


def read_evaluations(store: Store, run: str) -> RunEvaluations:
    """Read the evaluations of a run.

    Raises:
        StoreError: If an artifact is missing or damaged.
    """
    panels: dict[str, dict[int, Rates]] = {}
    for iteration, stages in store.runs.iterations(run).items():
        for stage, keys in stages.items():
            if stage.startswith(_STAGE):
                panel = panels.setdefault(stage.removeprefix(_STAGE), {})
                panel[iteration] = success_by_prompt(store, keys["episodes"])
    return RunEvaluations(panels)


def success_by_prompt(store: Store, key: str) -> Rates:
    """Success of the prompts in a dataset `episodes`, by its key; of those in which training never began.

    Raises:
        StoreError: If it is missing or damaged.
    """
    columns = ["cell", "env_seed", "initial_state_digest", "status", "success"]
    episodes = pl.DataFrame(store.read_table("episodes", key, columns=columns))
    valid = episodes.filter(pl.col("status").is_in(ERROR_STATUSES).not_(), pl.col("cell").str.ends_with(SEEN).not_())
    shares = valid.group_by("env_seed", "initial_state_digest", maintain_order=True).agg(pl.col("success").mean())
    return {(seed, digest): rate for seed, digest, rate in shares.iter_rows()}
