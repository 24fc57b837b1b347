"""Searches of a user's own, named by `module:attribute`."""

from typing import Any

import pyarrow as pa

from starpo.ragen.core.candidates import CandidatesConfig
from starpo.ragen.methods.search.play import play_searching


class Patience(CandidatesConfig):
    """Settings of a search of one's own."""

    patience: int = 2


def shortest(*shard: Any) -> pa.Table:
    """Of the candidates of a turn, take the one with the fewest tokens."""
    return play_searching(*shard, score=lambda rows: -sum(len(row["response_ids"]) for row in rows))


def nothing(*_: Any) -> None:
    """Return no table."""


shortest.options = nothing.options = Patience
