"""Finished shards of work in progress, kept in the store until its outputs are: a killed process does not lose them.

    play_shards --keep--> <store>/shards/<key>/turns.arrow --recall, by the next attempt--> play_shards
                                                           --forget, once the outputs are stored

A key is that of the work and of the shard's episodes, so a shard is found by the same work alone. No run names it: if
its work is never finished, garbage collection deletes it.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, StoreError, first_line
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import canonical_json, stage_key
from starpo.ragen.store.artifacts.provenance import collect
from starpo.ragen.store.remote.location import NUM_REQUESTS
from starpo.schemas.datasets import TURNS
from starpo.schemas.manifest import Stage

if TYPE_CHECKING:
    from starpo.ragen.agents.rollout.episode import Episode

KIND = "shards"
STAGE = Stage(name="shard", version=1)
FILE = "turns.arrow"
"""The rows as they travel between processes, an Arrow stream: with their images and their usage."""
KEEP_AFTER_S = 5.0
"""Seconds of work before anything is kept: playing so little again takes no longer than storing it is worth."""

_log = logging.getLogger(__name__)


class KeptShards:
    """The finished shards of one work. Implements `ragen.agents.rollout.shards.ShardKeeper`.

    Attributes:
        num_recalled: Episodes that an earlier attempt has finished.
    """

    def __init__(
        self, store: Store, work: Work, *, is_computed: bool, on_recall: Callable[[int, int], None] | None = None
    ) -> None:
        """Look up nothing yet.

        Args:
            store: Takes them.
            work: The work that they are a part of.
            is_computed: Whether a model is computed for them: then they are only used where the hardware and the
                versions are the same, as one output must not mix two ways to round.
            on_recall: Called with the number of episodes that were finished, if any, and their total.
        """
        self.num_recalled = 0
        self._seconds = 0.0
        self._store = store
        self._work = work
        self._is_computed = is_computed
        self._on_recall = on_recall
        self._begun = self._kept_at = time.monotonic()
        self._waiting: list[tuple[Sequence[Episode], pa.Table]] = []
        self._stored: list[str] = []

    def recall(self, shards: "Sequence[Sequence[Episode]]") -> dict[int, pa.Table]:
        """Return index -> rows of the shards that an earlier attempt has finished."""
        keys = [self._key(episodes) for episodes in shards]
        with ThreadPoolExecutor(NUM_REQUESTS) as pool:
            recalled = {index: kept for index, kept in enumerate(pool.map(self._read, keys)) if kept is not None}
        self._stored = [keys[index] for index in recalled]
        self.num_recalled = sum(len(shards[index]) for index in recalled)
        self._seconds = sum(seconds for _, seconds in recalled.values())
        if recalled:
            total = sum(map(len, shards))
            _log.warning(
                "%s: an attempt that was stopped had finished %s of %s episodes; the others are played",
                self._work.name,
                f"{self.num_recalled:,}",
                f"{total:,}",
            )
            if self._on_recall is not None:
                self._on_recall(self.num_recalled, total)
        return {index: rows for index, (rows, _) in recalled.items()}

    def keep(self, episodes: "Sequence[Episode]", turns: pa.Table) -> None:
        """Keep a shard, from `KEEP_AFTER_S` on. If the store cannot be written, that is logged: work goes on."""
        self._waiting.append((episodes, turns))
        now = time.monotonic()
        if now - self._begun < KEEP_AFTER_S:
            return
        seconds, self._kept_at = (now - self._kept_at) / len(self._waiting), now
        waiting, self._waiting = self._waiting, []
        for shard in waiting:
            try:
                self._put(*shard, seconds)
            except StoreError as error:
                _log.warning(
                    "%s: finished episodes could not be kept; if this is stopped, they are played again: %s",
                    self._work.name,
                    first_line(error),
                )

    def provenance(self) -> dict[str, float]:
        """Return what is recorded of an output that was not made in one go: the episodes that were recalled, and the
        seconds of all attempts, as far as these were not lost. Empty if it was."""
        if not self.num_recalled:
            return {}
        seconds = self._seconds + time.monotonic() - self._begun
        return {"recalled_episodes": self.num_recalled, "seconds": round(seconds, 3)}

    def forget(self) -> None:
        """Delete them, as the outputs are stored. What cannot be deleted is left to garbage collection."""
        with suppress(StoreError), ThreadPoolExecutor(NUM_REQUESTS) as pool:
            list(pool.map(lambda key: self._store.discard(KIND, key), self._stored))

    def _key(self, episodes: "Sequence[Episode]") -> str:
        facts = collect() if self._is_computed else {}
        settings = {
            "work": self._work.key,
            "columns": TURNS.version,
            "episodes": [vars(episode) for episode in episodes],
            "machine": {name: facts[name] for name in ("hardware", "versions") if facts},
        }
        return stage_key(STAGE, settings, {}, None)

    def _read(self, key: str) -> tuple[pa.Table, float] | None:
        if not self._store.has(KIND, key):
            return None
        try:
            manifest = self._store.manifest(KIND, key)
            data = self._store.file_of(manifest, FILE)
        except ArtifactMissingError:  # another process has just finished the same work
            return None
        except ArtifactDamagedError as error:
            _log.warning("%s: episodes that were kept are damaged, and played again: %s", self._work.name, error.what)
            return None
        return pa.ipc.open_stream(data).read_all(), float(manifest.provenance["seconds"])

    def _put(self, episodes: "Sequence[Episode]", turns: pa.Table, seconds: float) -> None:
        key, ids = self._key(episodes), [episode.trajectory_id for episode in episodes]
        names = hashlib.sha256(canonical_json(ids).encode()).hexdigest()
        facts = Facts(
            key=key,
            stage=STAGE,
            settings={"work": self._work.key, "first": ids[0], "last": ids[-1], "episodes": names},
            inputs=self._work.inputs,
            seed=None,
            is_deterministic=False,  # that is said of the outputs
            provenance={"seconds": round(seconds, 3)},
        )
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with self._store.new_folder() as folder:
            with pa.ipc.new_stream(folder / FILE, turns.schema, options=options) as writer:
                writer.write_table(turns)
            self._store.take_folder(KIND, folder, facts)
        self._stored.append(key)
