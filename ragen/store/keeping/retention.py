"""Which checkpoints a run keeps. Dropping one loses nothing if updates are repeatable (`ragen.runs.derive`).

Checkpoint n of a run is the one after n iterations; 0 is the first. An iteration without an update passes its
checkpoint on, so several numbers may refer to one checkpoint.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from starpo.ragen.store import Store


def kept_numbers(newest: int, every: int, keep_last: int) -> list[int]:
    """Return the numbers of the checkpoints to keep: the first, every n-th, and the newest.

    Args:
        newest: Number of the newest one.
        every: n.
        keep_last: How many of the newest; at least 1.
    """
    assert every >= 1
    assert keep_last >= 1
    return [number for number in range(newest + 1) if number % every == 0 or number > newest - keep_last]


def superseded(checkpoints: Sequence[str], every: int, keep_last: int) -> dict[str, int]:
    """Return the checkpoints that need not be kept.

    Args:
        checkpoints: Key of each checkpoint, from the first to the newest.
        every: See `kept_numbers`.
        keep_last: See `kept_numbers`.

    Returns:
        Key -> the lowest number that refers to it, in order. A checkpoint with several numbers is kept if any of them
        is.
    """
    kept = {checkpoints[number] for number in kept_numbers(len(checkpoints) - 1, every, keep_last)}
    return {key: checkpoints.index(key) for key in dict.fromkeys(checkpoints) if key not in kept}


@contextmanager
def left_as_found(store: Store, keys: Iterable[str]) -> Iterator[None]:
    """Context manager: at the end, drop again those of these checkpoints that were dropped before, so that reading
    restores none permanently."""
    dropped = [key for key in keys if store.dropped("checkpoint", key) is not None]
    try:
        yield
    finally:
        for key in dropped:
            if store.has("checkpoint", key):
                store.drop("checkpoint", key)


@dataclass
class Retention:
    """Drops a run's superseded checkpoints as the run proceeds; repeated calls are harmless.

    What other runs of the store need is kept: a checkpoint that one of them shares and would keep by its own settings,
    or has not passed yet. A run that later reaches a dropped checkpoint, and needs it, derives it.

    Attributes:
        store: The store that holds them.
        run: The run's name.
        every: Keep every n-th.
        keep_last: Number of newest checkpoints to keep.
        start: Number of the checkpoint that the run starts from. For a replay, this one and all before it belong to the
            replayed run and are not dropped.
    """

    store: Store
    run: str
    every: int = 1
    keep_last: int = 1
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
        for key, number in superseded(checkpoints, self.every, self.keep_last).items():
            if number <= self.start or key in self._done or self._is_needed_elsewhere(key, number):
                continue
            if self.store.was_made("checkpoint", key):
                self.store.drop("checkpoint", key)
                dropped.append(key)
            self._done.add(key)
        return dropped

    def _is_needed_elsewhere(self, key: str, number: int) -> bool:
        """Whether another run needs the checkpoint. Runs share a checkpoint only as the outcome of the same iteration;
        once their checkpoints differ, they never share one again."""
        for run in self.store.runs.names():
            if run == self.run or run in self._strangers:
                continue
            theirs = self.store.runs.iteration(run, number - 1).get("update", {}).get("checkpoint")
            if theirs == key and self._is_kept_by(run, number):
                return True
            if theirs not in (key, None):
                self._strangers.add(run)
        return False

    def _is_kept_by(self, run: str, number: int) -> bool:
        record = self.store.runs.find(run)
        if record is None:  # a copy in progress, which writes run.json last
            return True
        config = record.config
        every, keep_last = config.get("checkpoint_every", 1), config.get("checkpoint_keep_last", 1)
        last = number  # last number of this checkpoint: iterations without an update pass it on
        while (stages := self.store.runs.iteration(run, last)) and "update" not in stages:
            last += 1
        has_come_past = "update" in self.store.runs.iteration(run, last - 1 + keep_last)
        return any(n % every == 0 for n in range(number, last + 1)) or not has_come_past
