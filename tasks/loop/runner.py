"""`Runner`: what the loops ask of whoever walks them.

One carries stages out and records them, one imports, one plans, one compares with a record. Those that do no work
answer questions on data from what is stored. None means that the answer is not known yet: the loop goes on as usual.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import num_kept
from starpo.tasks.progress import RunProgress


class Runner:
    """Executor of a loop's stages, and receiver of its notifications, which are no-ops unless overridden.

    Attributes:
        name: The run's name.
        store_url: URL of the store with its artifacts.
        progress: Receives the progress of stages; None for no progress.
    """

    name: str
    store_url: str
    progress: RunProgress | None = None

    @property
    def is_over(self) -> bool:
        """Whether what follows is of no interest; the loop then ends before its next iteration."""
        return False

    def metric(self, iteration: int, name: str) -> float | None:
        """Return a metric of an iteration; None if it is not measured, e.g. an update's if there was none, or not
        known yet."""
        raise NotImplementedError

    def measured(self, iteration: int, names: Iterable[str]) -> dict[str, float]:
        """Return those of the metrics that are known, by name."""
        metrics = {name: self.metric(iteration, name) for name in names}
        return {name: value for name, value in metrics.items() if value is not None}

    def num_kept(self, iteration: int, attempt: int, selection: str) -> int | None:
        """Count the groups that the selection of an attempt keeps; None if it is not known yet."""
        return num_kept(Store(self.store_url), selection)

    def stage(self, iteration: int, work: Work) -> Keys:
        """Carry out one stage of an iteration and return its outputs."""
        raise NotImplementedError

    @contextmanager
    def concurrently(self, iteration: int, work: Work) -> Iterator[Keys]:
        """Carry out one stage concurrently with the block; the yielded dict is filled when the block has ended."""
        keys: Keys = {}
        yield keys
        keys |= self.stage(iteration, work)

    def unrecorded(self, iteration: int, work: Work) -> Keys:
        """Carry out one stage that has no entry of its own in the record, and return its outputs."""
        raise NotImplementedError

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        """Note that an iteration uses artifacts from an earlier iteration or another run."""

    def episode_keys(self, config: StarPOConfig) -> Keys:
        """Find the stored episodes of other runs that the first checkpoint learns from: role -> key."""
        if config.policy.type == "tiny":
            return {}
        from starpo.tasks.first_checkpoint.stored_episodes import episode_keys

        return episode_keys(config.policy, self.store_url)

    def check_teacher(self, first: str, teacher: str, name: str) -> None:
        """Refuse a teacher that does not read the tokens of the run's first checkpoint, given by their keys."""

    def warn(self, message: str) -> None:
        """Warn the user."""

    def note(self, iteration: int, values: Mapping[str, float]) -> None:
        """Report metrics that no stage measures, as they follow from stored data."""

    def is_kept(self, number: int) -> bool:
        """Whether the run keeps the checkpoint of this number, the one after as many iterations."""
        return True

    def retain(self, checkpoints: Sequence[str]) -> None:
        """Apply the run's retention settings to its checkpoints so far, from the first to the newest."""

    def training_begins(self) -> None:
        """Note that training begins, as the time before is not used to estimate the time left."""

    def iteration_done(self, iteration: int) -> None:
        """Note that an iteration is complete."""
