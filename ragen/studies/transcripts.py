"""Responses to the same prompts at a run's first and last evaluation, side by side, to show the effect of training.

episodes of two evaluations -> Transcript, one per prompt
"""

import polars as pl

from starpo.ragen.core.visible import shortened
from starpo.ragen.store import Store
from starpo.ragen.studies.result import Part
from starpo.schemas.datasets import ERROR_STATUSES

NUM_PROMPTS = 6
"""Number of prompts shown of a run: the first ones of its panel."""
_MAX_CHARACTERS = 2000
_KEYS = ["env_seed", "initial_state_digest"]


class Response(Part):
    """The first response of an episode; written by a model and therefore untrusted."""

    iteration: int
    """Number of updates before it."""
    text: str
    """Its text; if longer than 2,000 characters, the beginning and the end."""
    success: bool
    """Whether the episode reached the goal."""


class Transcript(Part):
    """A prompt and the policy's responses to it, before and after training."""

    observation: str
    """The first observation."""
    before: Response
    """At the first evaluation."""
    after: Response
    """At the last."""


def read_transcripts(store: Store, run: str, panel: str, number: int = NUM_PROMPTS) -> list[Transcript]:
    """Read the first responses of a run to the first prompts of its panel.

    Args:
        store: The store that has the run.
        run: Its name.
        panel: Name of the panel.
        number: Maximum number of prompts.

    Returns:
        Empty if the run was evaluated fewer than two times.

    Raises:
        StoreError: If an artifact is missing or damaged.
    """
    stage = f"evaluate:{panel}"
    keys = {at: of[stage]["episodes"] for at, of in store.runs.iterations(run).items() if stage in of}
    if len(keys) < 2:
        return []
    before, after = (_responses(store, at, keys[at]) for at in (min(keys), max(keys)))
    both = before.join(after, on=_KEYS, how="inner", suffix="_after", maintain_order="left").head(number)
    return [
        Transcript(
            observation=shortened(row["observation"], _MAX_CHARACTERS),
            before=_response(row, ""),
            after=_response(row, "_after"),
        )
        for row in both.iter_rows(named=True)
    ]


def _response(row: dict, suffix: str) -> Response:
    return Response(
        iteration=row[f"iteration{suffix}"],
        text=shortened(row[f"response{suffix}"], _MAX_CHARACTERS),
        success=row[f"success{suffix}"],
    )


def _responses(store: Store, iteration: int, key: str) -> pl.DataFrame:
    """Return the first response to every prompt of an evaluation, without episodes that ended in an error."""
    columns = [*_KEYS, "member", "status", "success", "observations", "responses"]
    episodes = pl.DataFrame(store.read_table("episodes", key, columns=columns))
    return episodes.filter(
        pl.col("status").is_in(ERROR_STATUSES).not_() & (pl.col("member") == 0) & (pl.col("responses").list.len() > 0)
    ).select(
        *_KEYS,
        "success",
        iteration=pl.lit(iteration),
        observation=pl.col("observations").list.first(),
        response=pl.col("responses").list.first(),
    )
