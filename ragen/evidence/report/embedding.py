"""Trajectories embedded in the page: gzipped JSON, most important first, up to a size limit.

iterations -> sampled -> Batch -> embed -> Embedded
"""

import gzip
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

MAX_TEXT_CHARACTERS = 20_000
"""Maximum length of a text in a page; the characters cut off are counted."""


@dataclass(frozen=True)
class Batch:
    """Trajectories sampled together.

    Attributes:
        iteration: Number of updates done before.
        cell: Name of the evaluated environment; None for a training rollout.
        groups: Groups in the format of the page's script, each with its `members`.
    """

    iteration: int
    cell: str | None
    groups: list[dict[str, Any]]


@dataclass(frozen=True)
class Embedded:
    """A batch, or as many of its groups as fit, ready for the page.

    Attributes:
        iteration: Number of updates done before.
        cell: Name of the evaluated environment; None for a training rollout.
        packed: Gzipped JSON `{"texts": [...], "groups": [...]}`; messages of prompts refer to their text by index.
        num_trajectories: Number of embedded trajectories.
        num_all: Number of trajectories in the whole batch.
        num_not_drawn: Number of embedded trajectories without pictures, as the environment does not reproduce them.
        images: Digests of the images that their prompts show, in order of first appearance.
    """

    iteration: int
    cell: str | None
    packed: bytes
    num_trajectories: int
    num_all: int
    num_not_drawn: int
    images: tuple[str, ...] = ()


def sampled(iterations: Sequence[int], preferred: Iterable[int], limit: int) -> list[int]:
    """Select iterations to embed, most important first.

    The last, the first, the preferred ones, then repeatedly the middle of the widest gap.

    Args:
        iterations: Available iterations, ascending.
        preferred: Preferred iterations; those not in `iterations` are ignored.
        limit: Maximum number of iterations.

    Returns:
        Distinct iterations; all of them if there are no more than `limit`.
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
    """Pack batches in order of importance until the next one does not fit.

    The first batch is always included, with as many groups as fit, but at least one.

    Args:
        batches: Batches in order of importance; consumed one at a time.
        max_bytes: Maximum total of packed bytes, not counting wanted iterations.
        wanted: Iterations that are packed completely, regardless of size.
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
    """Truncate a text for the page; return it and the number of characters cut off."""
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
        images=tuple(dict.fromkeys(name for member in members for turn in member["turns"] for name in turn["images"])),
    )


def _stored_once(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Replace every prompt text in the groups by its index in a list of distinct texts."""
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
