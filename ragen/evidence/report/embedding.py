"""Trajectories embedded in the page: gzipped JSON, most important first, up to a size limit.

iterations -> sampled -> Batch -> embed -> Embedded

The groups of a batch are made one at a time, and only their JSON is kept, up to what may fit: memory and time go by the
room in the page, not by the size of a rollout.
"""

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

MAX_TEXT_CHARACTERS = 20_000
"""Maximum length of a text in a page; the characters cut off are counted."""


@dataclass(frozen=True)
class TrajectoryBatch:
    """Trajectories sampled together.

    Attributes:
        iteration: Number of updates done before.
        cell: Name of the evaluated environment; None for a training rollout.
        groups: Groups in the format of the page's script, each with its `members`; they may be made on the way.
        num_trajectories: Number of trajectories of all groups.
    """

    iteration: int
    cell: str | None
    groups: Iterable[dict[str, Any]]
    num_trajectories: int


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


def embed(batches: Iterable[TrajectoryBatch], max_bytes: int, wanted: Collection[int] = ()) -> list[Embedded]:
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
        is_wanted = batch.iteration in wanted
        packing = _Packing()
        for group in batch.groups:
            packing.add(group)
            if not is_wanted and packing.min_bytes > room:
                break
        packed = packing.packed(batch, packing.num_groups)
        if is_wanted:
            embedded.append(packed)
            continue
        if embedded and (len(packed.packed) > room or packed.num_trajectories < packed.num_all):
            break
        num_groups = packing.num_groups
        while len(packed.packed) > room and num_groups > 1:
            num_groups = max(1, min(num_groups // 2, num_groups * room // len(packed.packed)))
            packed = packing.packed(batch, num_groups)
        embedded.append(packed)
        room -= len(packed.packed)
    return embedded


def packed_whole(groups: Iterable[Mapping[str, Any]], images: Mapping[str, str]) -> bytes:
    """Pack all groups of a batch with the images that their prompts show: gzipped JSON as in `Embedded.packed`.

    Args:
        groups: Groups in the format of the page's script.
        images: Digest -> PNG file in base64.
    """
    packing = _Packing()
    for group in groups:
        packing.add(group)
    return packing.whole(images)


def shortened(text: str | None) -> tuple[str | None, int]:
    """Truncate a text for the page; return it and the number of characters cut off."""
    if text is None or len(text) <= MAX_TEXT_CHARACTERS:
        return text, 0
    return text[:MAX_TEXT_CHARACTERS], len(text) - MAX_TEXT_CHARACTERS


@dataclass(frozen=True)
class _Packed:
    """The JSON of a group, and what it adds to the batch: texts, trajectories, images."""

    text: bytes
    num_texts: int
    num_trajectories: int
    num_not_drawn: int
    images: tuple[str, ...]


@dataclass
class _Packing:
    """Groups on their way into an `Embedded`, as JSON in which every text of a prompt is its index in `texts`.

    Attributes:
        min_bytes: Size that they will have at least, compressed: 80% of that at zlib's usual level, which is at most a
            few percent larger than at the slowest.
    """

    texts: dict[str, int] = field(default_factory=dict)
    min_bytes: int = 0
    _num_bytes: int = 0
    _groups: list[_Packed] = field(default_factory=list)
    _compressor: Any = field(default_factory=lambda: zlib.compressobj())

    @property
    def num_groups(self) -> int:
        """Number of groups so far."""
        return len(self._groups)

    def add(self, group: Mapping[str, Any]) -> None:
        """Add a group."""
        members = group["members"]
        text = _as_json({**group, "members": [self._member(member) for member in members]})
        images = dict.fromkeys(name for member in members for turn in member["turns"] or () for name in turn["images"])
        num_not_drawn = sum(not member["drawn"] for member in members)
        self._groups.append(_Packed(text, len(self.texts), len(members), num_not_drawn, tuple(images)))
        self._num_bytes += len(self._compressor.compress(text))
        self.min_bytes = self._num_bytes * 4 // 5

    def packed(self, batch: TrajectoryBatch, num_groups: int) -> Embedded:
        """Return the first groups as they go into the page."""
        groups = self._groups[:num_groups]
        texts = list(self.texts)[: groups[-1].num_texts if groups else 0]
        return Embedded(
            iteration=batch.iteration,
            cell=batch.cell,
            packed=self._gzipped(groups, texts, {}, 9),
            num_trajectories=sum(group.num_trajectories for group in groups),
            num_all=batch.num_trajectories,
            num_not_drawn=sum(group.num_not_drawn for group in groups),
            images=tuple(dict.fromkeys(name for group in groups for name in group.images)),
        )

    def whole(self, images: Mapping[str, str]) -> bytes:
        """Return all groups and these images, quickly packed."""
        return self._gzipped(self._groups, list(self.texts), images, 1)

    def _gzipped(self, groups: Sequence[_Packed], texts: Sequence[str], images: Mapping[str, str], level: int) -> bytes:
        compressor = zlib.compressobj(level, wbits=31)  # gzip, without a time
        more = b',"images":' + _as_json(images) if images else b""
        parts = [compressor.compress(b'{"texts":' + _as_json(texts) + more + b',"groups":[')]
        for number, group in enumerate(groups):
            parts.append(compressor.compress(b"," + group.text if number else group.text))
        return b"".join([*parts, compressor.compress(b"]}"), compressor.flush()])

    def _member(self, member: Mapping[str, Any]) -> dict[str, Any]:
        return {**member, "turns": member["turns"] and [self._turn(turn) for turn in member["turns"]]}

    def _turn(self, turn: Mapping[str, Any]) -> dict[str, Any]:
        prompt = turn["prompt"]
        added = prompt and [
            [role, self.texts.setdefault(text, len(self.texts)), *rest] for role, text, *rest in prompt["added"]
        ]
        return {**turn, "prompt": prompt and {**prompt, "added": added}}


def _as_json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "surrogatepass")
