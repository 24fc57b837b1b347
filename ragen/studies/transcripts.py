"""Responses to the same prompts at a run's first and last evaluation, side by side: what training made of them.

episodes of two evaluations -> Transcript, one a prompt
"""

import polars as pl

from starpo.ragen.core.visible import shortened
from starpo.ragen.store import Store
from starpo.ragen.studies.result import Part
from starpo.schemas.datasets import ERROR_STATUSES

NUM_PROMPTS = 6
"""Prompts of a run that are shown, the first of its panel."""
_MAX_CHARACTERS = 2000
_KEYS = ["env_seed", "initial_state_digest"]


class Response(Part):
    """The first response of an episode; what a model wrote, so untrusted."""

    iteration: int
    """Updates before it."""
    text: str
    """What it says; of more than 2,000 characters the beginning and the end."""
    success: bool
    """Did the episode reach the goal?"""


class Transcript(Part):
    """A prompt and what the policy said to it, before and after."""

    observation: str
    """What it saw."""
    before: Response
    """At the first evaluation."""
    after: Response
    """At the last."""


def read_transcripts(store: Store, run: str, panel: str, number: int = NUM_PROMPTS) -> list[Transcript]:
    """First responses of a run to the first prompts of its panel.

    Args:
        store: Where it is.
        run: Its name.
        panel: Name of the panel.
        number: Prompts, at most.

    Returns:
        None where the run was evaluated fewer than two times.

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
    """The first response to every prompt of an evaluation, errors left out."""
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
