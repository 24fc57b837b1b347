"""The training loop: plain Python over stages. Resuming a run is running it again.

checkpoint -> rollout -> reward -> variance_filter -> diagnose -> update -> checkpoint
     `-> evaluate                                     beside it, with rollout.staleness = 1: the next rollout

Whoever carries out its stages is a `Recorder`: one does them, one plans them, one holds a record against them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from ragen.config.starpo import StarPOConfig
from ragen.diagnostics.online import RolloutUse
from ragen.errors import NothingKeptError
from ragen.seeding import derive_seed
from tasks.diagnose import diagnose
from tasks.evaluate import evaluate
from tasks.progress import RunProgress
from tasks.reward import reward
from tasks.rollout import rollout
from tasks.stage import Keys
from tasks.update import update
from tasks.variance_filter import variance_filter
from tasks.warm_start import warm_start


class Recorder(Protocol):
    """What the training loop needs of whoever carries out its stages: a `RunRecorder`, or a `flows.plan.Planner`."""

    name: str
    store_url: str

    @property
    def progress(self) -> RunProgress | None:
        """Where stages say how far they are."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """The newest value of every metric."""

    def stage(self, iteration: int, name: str, task: Callable[..., Keys], /, *args: Any, **kwargs: Any) -> Keys:
        """One stage; returns what it made."""

    def beside(
        self, iteration: int, name: str, task: Callable[..., Keys], /, *args: Any, **kwargs: Any
    ) -> AbstractContextManager[Keys]:
        """One stage beside those of the block; what it made is there when the block has ended."""

    def unrecorded(self, task: Callable[..., Keys], /, *args: Any, **kwargs: Any) -> Keys:
        """One stage that is not written down; returns what it made."""

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        """An iteration uses artifacts that were made before, or elsewhere."""

    def warn(self, message: str) -> None:
        """Something that should not go unseen."""

    def note(self, iteration: int, values: Mapping[str, float]) -> None:
        """Numbers that no stage measures."""

    def retain(self, checkpoints: Sequence[str]) -> None:
        """Of the run's checkpoints so far, the first to the newest, keep those that its settings say."""

    def training_begins(self) -> None:
        """What came before says nothing about the time left."""

    def iteration_done(self, iteration: int, should_summarise: bool = True) -> None:
        """An iteration is complete."""


def train(record: Recorder, config: StarPOConfig) -> None:
    """The loop.

    Args:
        record: Carries out the stages, or, when a run is only planned, derives their keys (`flows.plan`).
        config: All settings.

    Raises:
        NothingKeptError: If the filter kept no group, too many iterations in a row.
    """
    store = record.store_url
    first = checkpoint = record.stage(0, "warm_start", warm_start, store, config, progress=record.progress)[
        "checkpoint"
    ]
    turns: Keys = {}
    ahead: Keys = {}  # the next rollout, where it was played beside the last update
    lag = 0  # updates since the policy that played, when its rollout is first learned from
    checkpoints = [first]
    use = RolloutUse(config)
    num_empty = 0
    _evaluate_if_due(record, config, 0, checkpoint)
    record.training_begins()
    for iteration in range(config.iterations):
        if use.should_collect():
            lag = 1 if ahead else 0
            turns = ahead or record.stage(iteration, "rollout", rollout, store, iteration, config, checkpoint)
        else:
            record.reuse(iteration, "rollout", turns)
        data = dict(turns)
        data |= record.stage(iteration, "reward", reward, store, iteration, config.reward, **data)
        data |= record.stage(iteration, "variance_filter", variance_filter, store, iteration, config.filter, **data)
        record.stage(iteration, "diagnose", diagnose, store, iteration, **data)
        if record.metrics["filter/num_kept"] == 0:
            num_empty += 1
            ahead = {}
            use.served_nothing()
            record.warn(
                f"iteration {iteration}: the filter kept no group ({num_empty} in a row), so there is no update"
            )
            if num_empty == config.filter.max_empty_iterations:
                raise NothingKeptError(
                    f"the filter kept no group in {num_empty} iterations in a row: there is nothing to learn from. "
                    f"`ragen show {record.name} --iteration {iteration}` says why each group was dropped; "
                    "loosen the filter, or start from a policy whose returns vary"
                )
        else:
            num_empty = 0
            with _next_rollout(record, config, iteration + 1, checkpoint) as ahead:
                checkpoint = learn(record, config, iteration, checkpoint, first, data)["checkpoint"]
            record.note(iteration, {"update/staleness": lag + use.num_updates})
            stale = use.served(record.metrics)
            if stale:
                used = f"after {use.num_updates} of {config.online_k} updates on this one"
                record.warn(f"iteration {iteration}: {stale}; the next iteration collects a rollout, {used}")
        record.note(iteration, {"online/num_uses": use.num_updates, "online/num_early_rollouts": use.num_early})
        checkpoints.append(checkpoint)
        record.retain(checkpoints)
        record.iteration_done(iteration)
        _evaluate_if_due(record, config, iteration + 1, checkpoint)


def _next_rollout(
    record: Recorder, config: StarPOConfig, iteration: int, checkpoint: str
) -> AbstractContextManager[Keys]:
    """The rollout of an iteration, played during the update before it by the checkpoint which that begins with.

    Nothing where the settings want it played afterwards, or the run ends.
    """
    if config.rollout.staleness == 0 or iteration == config.iterations:
        return nullcontext({})
    return record.beside(iteration, "rollout", rollout, record.store_url, iteration, config, checkpoint)


def learn(record: Recorder, config: StarPOConfig, iteration: int, checkpoint: str, reference: str, data: Keys) -> Keys:
    """One update in the name of a run; the flow `replay` makes its updates by the same settings, so by the same keys.

    Args:
        record: The run.
        config: Its settings.
        iteration: Updates done before.
        checkpoint: Key of the checkpoint to train.
        reference: Key of the run's first checkpoint.
        data: Kind -> key of turns, rewards and selection; others are passed over.
    """
    return record.stage(
        iteration,
        "update",
        update,
        record.store_url,
        config.update,
        iteration=iteration,
        num_iterations=config.iterations,
        seed=derive_seed(config.seed, "update", iteration),
        temperature=config.rollout.temperature,
        max_response_tokens=config.rollout.max_response_tokens,
        checkpoint=checkpoint,
        reference=reference,
        **{kind: data[kind] for kind in ("turns", "rewards", "selection")},
    )


def _evaluate_if_due(record: Recorder, config: StarPOConfig, iteration: int, checkpoint: str) -> None:
    """The first and the last checkpoint meet every panel; those in between the training environment's, now and then."""
    is_end = iteration in (0, config.iterations)
    if not is_end and iteration % config.evaluation.every:
        return
    own = config.environment.type
    for cell, environment in (config.panels if is_end else {own: config.environment}).items():
        record.stage(
            iteration,
            f"evaluate:{cell}",
            evaluate,
            record.store_url,
            iteration,
            cell,
            environment,
            config.agent,
            config.rollout,
            config.evaluation,
            checkpoint,
        )
