"""A stage as a value: everything that determines its result, hence its cache key, and how to carry it out.

    Work(stage, outputs, settings, inputs, seed, code).key --stored?--> nothing to do
                                                           --missing--> do --Output, Output, ...--> stored

Work can be built, including its key, from a stage's inputs without carrying it out: plans, verification, sweeps and
replays use the same values as the training loop.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.identity import code_identity, is_reusable
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import FileEntry, Stage

_log = logging.getLogger(__name__)

Keys = dict[str, str]
"""Artifact kind -> key."""


@dataclass(frozen=True)
class Dropped:
    """A folder that is recorded, never written: the entries of its files, sorted by name."""

    files: list[FileEntry]


@dataclass(frozen=True)
class Output:
    """An output of a stage, to be validated and stored.

    Attributes:
        kind: Kind of the artifact.
        content: A dataset as a table or in batches, a folder from `Store.new_folder`, or a dropped one.
        headline: Its most important numbers.
        provenance: Details of how it was made, in addition to those that are always recorded.
        is_deterministic: Whether the same work gives the same content.
        replay_fault: Why the environment that was played cannot be replayed; if set, the output is not deterministic.
    """

    kind: str
    content: pa.Table | Iterable[pa.RecordBatch] | Path | Dropped
    headline: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    is_deterministic: bool = True
    replay_fault: str = ""


CarryOut = Callable[["Work", Store, ModelPlacement], Iterator[Output]]
"""Carries out work on inputs from this store; each output is stored before the generator resumes. What plays or learns
does so where the placement says."""


@dataclass(frozen=True, eq=False)
class Work:
    """One stage with one set of inputs. Works with equal keys are equal.

    Attributes:
        stage: The stage and its version.
        outputs: Kinds of the artifacts that it makes.
        do: Makes them.
        settings: The stage's own configuration, as JSON, without settings that cannot affect the result.
        inputs: Role -> artifact key.
        seed: Its seed, if it has one.
        code: Role -> `module:attribute` of the code that the settings name; the key contains the identity of that code.
        part: Distinguishes several works of the same stage in an iteration, such as the environment of an evaluation.
    """

    stage: Stage
    outputs: tuple[str, ...]
    do: CarryOut = field(repr=False)
    settings: dict[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None
    code: Mapping[str, str] = field(default_factory=dict)
    part: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Work) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def name(self) -> str:
        """Name in the records of runs, such as `update` or `evaluate:sokoban`."""
        return f"{self.stage.name}:{self.part}" if self.part else self.stage.name

    @cached_property
    def key(self) -> str:
        """Key of all its artifacts."""
        return stage_key(self.stage, self.settings, self.inputs, self.seed, self.identities)

    @property
    def keys(self) -> Keys:
        """Kind -> key of each output."""
        return dict.fromkeys(self.outputs, self.key)

    @cached_property
    def identities(self) -> dict[str, str]:
        """Role -> identity of the code that the settings name."""
        identities = {role: code_identity(target) for role, target in self.code.items()}
        for role, identity in identities.items():
            if not is_reusable(identity):
                _warn_of_unknown_code(self.code[role])
        return identities

    def is_stored(self, store: Store) -> bool:
        """Whether all outputs were made, even if a checkpoint among them has been dropped since."""
        return all(store.was_made(kind, self.key) for kind in self.outputs)

    def carry_out(self, store: Store, placement: ModelPlacement | None = None) -> Keys:
        """Carry out the work unless it is stored.

        Args:
            store: Has its inputs, and takes its outputs.
            placement: Where to play and learn. None: with players and a learner of this stage alone, closed at its end.

        Returns:
            Kind -> key.
        """
        if not self.is_stored(store):
            started = time.perf_counter()
            try:
                with nullcontext(placement) if placement else ModelPlacement() as opened:
                    for made in self.do(self, store, opened):
                        self._put(store, made, time.perf_counter() - started)
            except SystemExit as error:
                used = ", ".join(dict.fromkeys(self.code.values())) or "no code that settings name"
                raise StarPOError(
                    f"stage {self.name}: sys.exit({error.code!r}) was called, by code that it uses ({used}); raise an "
                    "exception there instead"
                ) from error
        return self.keys

    def _put(self, store: Store, made: Output, seconds: float) -> None:
        facts = Facts(
            key=self.key,
            stage=self.stage,
            settings=self.settings,
            inputs=self.inputs,
            seed=self.seed,
            code=self.identities,
            headline=made.headline,
            provenance={"seconds": round(seconds, 3), **made.provenance},
            is_deterministic=made.is_deterministic and not made.replay_fault,
            replay_fault=made.replay_fault,
        )
        if isinstance(made.content, Path):
            store.take_folder(made.kind, made.content, facts)
        elif isinstance(made.content, Dropped):
            store.put_dropped(made.kind, made.content.files, facts)
        else:
            store.put_table(made.kind, made.content, facts)


@cache
def _warn_of_unknown_code(target: str) -> None:
    _log.warning(
        "%s has no source that can be read and belongs to no distribution with a version, so nothing tells whether it "
        "is the same code the next time: what this run makes with it is stored as not reusable by others. Give it a "
        "source file, or install it as a package",
        target,
    )
