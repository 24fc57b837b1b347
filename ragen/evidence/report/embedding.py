"""Which trajectories travel in the page, and in which form: gzipped JSON, the most important first, up to a budget.

iterations -> sampled -> Batch -> embed -> Embedded
"""

import gzip
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

MAX_TEXT_CHARACTERS = 20_000
"""Longest text in a page; what is cut is counted."""


@dataclass(frozen=True)
class Batch:
    """Trajectories that were made together.

    Attributes:
        iteration: Updates done before.
        cell: Name of the evaluated environment; None: a training rollout.
        groups: As the page's script reads them, each with its `members`.
    """

    iteration: int
    cell: str | None
    groups: list[dict[str, Any]]


@dataclass(frozen=True)
class Embedded:
    """A batch, or as many of its groups as fitted, ready for the page.

    Attributes:
        iteration: Updates done before.
        cell: Name of the evaluated environment; None: a training rollout.
        packed: Gzipped JSON `{"texts": [...], "groups": [...]}`; the messages of prompts name their text by its place.
        num_trajectories: In it.
        num_all: In the whole batch.
        num_not_drawn: Of those in it, trajectories without pictures, because the environment does not repeat them.
    """

    iteration: int
    cell: str | None
    packed: bytes
    num_trajectories: int
    num_all: int
    num_not_drawn: int


def sampled(iterations: Sequence[int], preferred: Iterable[int], limit: int) -> list[int]:
    """Which iterations to embed, the most important first.

    The last, the first, those that are preferred, then repeatedly the middle of the widest gap.

    Args:
        iterations: Those there are, ascending.
        preferred: Others than `iterations` are ignored.
        limit: At most so many.

    Returns:
        Different iterations; all of them if there are no more than `limit`.
    """
    if not iterations:
        return []
    present = set(iterations)
    chosen = list(dict.fromkeys([iterations[-1], iterations[0], *(i for i in preferred if i in present)]))
    while len(chosen) < min(limit, len(iterations)):
        places = sorted(iterations.index(i) for i in chosen)
        low, high = max(pairwise(places), key=lambda gap: gap[1] - gap[0])
        chosen.append(iterations[(low + high) // 2])
    return chosen[:limit]


def embed(batches: Iterable[Batch], max_bytes: int, wanted: Collection[int] = ()) -> list[Embedded]:
    """Pack batches, the most important first, until the next one does not fit.

    Of the first, which must be there, as many groups are taken as fit, at least one.

    Args:
        batches: In the order of importance; made one at a time.
        max_bytes: Bound of all packed bytes together, but for those of iterations that are wanted.
        wanted: Iterations that are packed whole, whatever their size.
    """
    embedded: list[Embedded] = []
    room = max_bytes
    for batch in batches:
        packed = _packed(batch, len(batch.groups))
        if batch.iteration in wanted:
            embedded.append(packed)
            continue
        if len(packed.packed) > room and embedded:
            break
        num_groups = len(batch.groups)
        while len(packed.packed) > room and num_groups > 1:
            num_groups = max(1, min(num_groups // 2, num_groups * room // len(packed.packed)))
            packed = _packed(batch, num_groups)
        embedded.append(packed)
        room -= len(packed.packed)
    return embedded


def shortened(text: str | None) -> tuple[str | None, int]:
    """A text as it goes into the page, and how many characters of it do not."""
    if text is None or len(text) <= MAX_TEXT_CHARACTERS:
        return text, 0
    return text[:MAX_TEXT_CHARACTERS], len(text) - MAX_TEXT_CHARACTERS


def _packed(batch: Batch, num_groups: int) -> Embedded:
    groups = batch.groups[:num_groups]
    members = [member for group in groups for member in group["members"]]
    text = json.dumps(_stored_once(groups), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Embedded(
        iteration=batch.iteration,
        cell=batch.cell,
        packed=gzip.compress(text.encode("utf-8", "surrogatepass"), mtime=0),
        num_trajectories=len(members),
        num_all=sum(len(group["members"]) for group in batch.groups),
        num_not_drawn=sum(not member["drawn"] for member in members),
    )


def _stored_once(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The groups with every text of a prompt replaced by its place in a list of different texts."""
    places: dict[str, int] = {}

    def turn(given: Mapping[str, Any]) -> dict[str, Any]:
        prompt = given["prompt"]
        added = prompt and [
            [role, places.setdefault(text, len(places)), *rest] for role, text, *rest in prompt["added"]
        ]
        return {**given, "prompt": prompt and {**prompt, "added": added}}

    def member(given: Mapping[str, Any]) -> dict[str, Any]:
        return {**given, "turns": [turn(one) for one in given["turns"]]}

    packed = [{**group, "members": [member(one) for one in group["members"]]} for group in groups]
    return {"texts": list(places), "groups": packed}
