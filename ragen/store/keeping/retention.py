"""Which checkpoints a run keeps. The others can be derived again if updates are repeatable (`ragen.runs.derive`).

Checkpoint n of a run is the one after n iterations; 0 is the first. An iteration without an update passes its
checkpoint on, so several numbers may refer to one checkpoint.

A checkpoint that is not kept is recorded, never written. Only where that is impossible (`tasks.update`), it is written
and `Retention` drops it later.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store


def is_kept(number: int, newest: int, every: int) -> bool:
    """Whether a run keeps a checkpoint: every n-th, so the first, and the newest.

    Args:
        number: Number of the checkpoint.
        newest: Number of the newest one; of the last one, if the run has not got there.
        every: n; at least 1.
    """
    return number % every == 0 or number == newest


def kept_numbers(newest: int, every: int) -> list[int]:
    """Return the numbers of the checkpoints to keep (`is_kept`)."""
    return [number for number in range(newest + 1) if is_kept(number, newest, every)]


def superseded(checkpoints: Sequence[str], every: int) -> dict[str, int]:
    """Return the checkpoints that need not be kept.

    Args:
        checkpoints: Key of each checkpoint, from the first to the newest.
        every: See `is_kept`.

    Returns:
        Key -> the lowest number that refers to it, in order. A checkpoint with several numbers is kept if any of them
        is.
    """
    kept = {checkpoints[number] for number in kept_numbers(len(checkpoints) - 1, every)}
    return {key: checkpoints.index(key) for key in dict.fromkeys(checkpoints) if key not in kept}


@dataclass
class Retention:
    """Drops a run's superseded checkpoints as the run proceeds; repeated calls are harmless.

    What another run of the store has too is kept. A run that later reaches a dropped checkpoint, and needs it, derives
    it.

    Attributes:
        store: The store that holds them.
        run: The run's name.
        every: Keep every n-th.
        should_lose: Whether checkpoints that cannot be derived again are dropped too.
        start: Number of the checkpoint that the run starts from. For a replay, this one and all before it belong to the
            replayed run and are not dropped.
    """

    store: Store
    run: str
    every: int = 1
    should_lose: bool = True
    start: int = 0
    _done: set[str] = field(default_factory=set)
    _strangers: set[str] = field(default_factory=set)

    def apply(self, checkpoints: Sequence[str]) -> list[str]:
        """Drop superseded checkpoints.

        Args:
            checkpoints: Key of each of the run's checkpoints, from the first to the newest, which is stored.

        Returns:
            Keys of the checkpoints dropped by this call.
        """
        if self.every == 1:
            return []
        dropped = []
        for key, number in superseded(checkpoints, self.every).items():
            if number <= self.start or key in self._done:
                continue
            if self.store.has("checkpoint", key):
                if self._would_be_lost(key) or self._is_shared(key, number):
                    continue
                dropped.append(key)
            if self.store.was_made("checkpoint", key):
                self.store.drop("checkpoint", key)
            self._done.add(key)
        return dropped

    def _would_be_lost(self, key: str) -> bool:
        return not self.should_lose and not self.store.manifest("checkpoint", key).is_deterministic

    def _is_shared(self, key: str, number: int) -> bool:
        """Whether another run has the checkpoint. Runs share a checkpoint only as the outcome of the same iteration;
        once their checkpoints differ, they never share one again."""
        for run in self.store.runs.names():
            if run == self.run or run in self._strangers:
                continue
            try:
                theirs = self.store.runs.iteration(run, number - 1).get("update", {}).get("checkpoint")
            except StoreError:  # damaged: it may have the checkpoint
                return True
            if theirs == key:
                return True
            if theirs is not None:
                self._strangers.add(run)
        return False
