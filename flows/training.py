"""The training loop: plain Python over stages. Resuming a run is running it again.

checkpoint -> rollout -> reward -> variance_filter -> diagnose -> update -> checkpoint
     |            `-> probe, now and then      |      beside it, with rollout.staleness = 1: the next rollout
     |                                         `-> gradient_probe, now and then
     `-> evaluate

Whoever carries out its stages is a `Runner`: one does them, one plans them, one holds a record against them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from starpo.flows.rollback import what_comes
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import CollapsedError, NothingKeptError
from starpo.ragen.evidence.diagnostics.alarm import Alarm, is_due
from starpo.ragen.evidence.diagnostics.online import RolloutUse
from starpo.ragen.work import Keys, Work
from starpo.tasks.diagnose import diagnose
from starpo.tasks.evaluate import evaluate
from starpo.tasks.gradient_probe import gradient_probe
from starpo.tasks.incident import incident
from starpo.tasks.probe import probe
from starpo.tasks.progress import RunProgress
from starpo.tasks.reward import reward
from starpo.tasks.rollout import rollout
from starpo.tasks.update import update
from starpo.tasks.variance_filter import variance_filter
from starpo.tasks.warm_start import warm_start


class Runner:
    """What the loop asks its stages of, and tells how it goes; listening is optional.

    Attributes:
        name: The run's name.
        store_url: Where its artifacts are.
        metrics: The newest value of every metric.
        progress: Where stages say how far they are.
    """

    name: str
    store_url: str
    metrics: Mapping[str, float]
    progress: RunProgress | None = None

    def stage(self, iteration: int, work: Work) -> Keys:
        """One stage of an iteration; returns what it made."""
        raise NotImplementedError

    @contextmanager
    def beside(self, iteration: int, work: Work) -> Iterator[Keys]:
        """One stage beside those of the block; what it made is there when the block has ended."""
        keys: Keys = {}
        yield keys
        keys |= self.stage(iteration, work)

    def unrecorded(self, iteration: int, work: Work) -> Keys:
        """One stage that has no place of its own in the record; returns what it made."""
        raise NotImplementedError

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        """An iteration uses artifacts that were made before, or elsewhere."""

    def warn(self, message: str) -> None:
        """Something that should not go unseen."""

    def note(self, iteration: int, values: Mapping[str, float]) -> None:
        """Numbers that no stage measures; they follow from what is stored."""

    def retain(self, checkpoints: Sequence[str]) -> None:
        """Of the run's checkpoints so far, the first to the newest, keep those that its settings say."""

    def training_begins(self) -> None:
        """What came before says nothing about the time left."""

    def iteration_done(self, iteration: int, should_summarise: bool = True) -> None:
        """An iteration is complete; should it be summarised for people?"""


def train(runner: Runner, config: StarPOConfig) -> None:
    """The loop.

    Args:
        runner: Carries out the stages, or, when a run is only planned, derives their keys (`flows.plan`).
        config: All settings.

    Raises:
        NothingKeptError: If the filter kept no group, too many iterations in a row.
        CollapsedError: If the run is collapsing, and the settings say that it ends then.
    """
    first = checkpoint = runner.stage(0, warm_start(config, runner.progress))["checkpoint"]
    turns: Keys = {}
    ahead: Keys = {}  # the next rollout, where it was played beside the last update
    lag = 0  # updates since the policy that played, when its rollout is first learned from
    checkpoints = [first]
    played: dict[int, str] = {}
    alarm = Alarm()
    use = RolloutUse(config)
    num_empty = 0
    _evaluate_if_due(runner, config, 0, checkpoint)
    runner.training_begins()
    for iteration in range(config.iterations):
        now = config.at(iteration)
        if use.should_collect():
            lag = 1 if ahead else 0
            turns = ahead or runner.stage(iteration, rollout(iteration, now, checkpoint))
        else:
            runner.reuse(iteration, "rollout", turns)
        played[iteration] = turns["turns"]
        every = config.diagnostics.probe_every
        if every and iteration % every == 0:
            runner.stage(iteration, probe(now, iteration, checkpoint, first, turns["turns"]))
        data = reward_and_filter(runner, now, iteration, turns)
        every = config.diagnostics.gradients_every
        if every and iteration % every == 0:
            runner.stage(iteration, gradient_probe(now, iteration, checkpoint, first, **data))
        if runner.metrics["filter/num_kept"] == 0:
            num_empty += 1
            ahead = {}
            use.served_nothing()
            runner.warn(
                f"iteration {iteration}: the filter kept no group ({num_empty} in a row), so there is no update"
            )
            if num_empty == now.filter.max_empty_iterations:
                raise NothingKeptError(
                    f"the filter kept no group in {num_empty} iterations in a row: there is nothing to learn from. "
                    f"`ragen show {runner.name} --iteration {iteration}` says why each group was dropped; "
                    "loosen the filter, or start from a policy whose returns vary"
                )
        else:
            num_empty = 0
            with _next_rollout(runner, config, iteration + 1, checkpoint) as ahead:
                checkpoint = runner.stage(iteration, update(now, iteration, checkpoint, first, **data))["checkpoint"]
            runner.note(iteration, {"update/staleness": lag + use.num_updates})
            stale = use.served(runner.metrics)
            if stale:
                used = f"after {use.num_updates} of {config.online_k} updates on this one"
                runner.warn(f"iteration {iteration}: {stale}; the next iteration collects a rollout, {used}")
        runner.note(iteration, {"online/num_uses": use.num_updates, "online/num_early_rollouts": use.num_early})
        checkpoints.append(checkpoint)
        runner.retain(checkpoints)
        runner.iteration_done(iteration)
        _evaluate_if_due(runner, config, iteration + 1, checkpoint)
        if config.diagnostics.on_collapse != "log":
            _act_on_collapse(runner, config, iteration, alarm, played)


def _act_on_collapse(
    runner: Runner, config: StarPOConfig, iteration: int, alarm: Alarm, played: Mapping[int, str]
) -> None:
    """End the run where its settings want that; `played` are the keys of all rollouts.

    Raises:
        CollapsedError: If the run is as bad as the settings say; `flows.rollback` says what comes then.
    """
    verdict = alarm.observe(iteration, runner.metrics)
    if is_due(config.diagnostics, verdict):
        healthy, action = alarm.healthy, what_comes(runner.name, config, alarm.healthy)
        runner.stage(iteration, incident(iteration, healthy, verdict, action, played))
        raise CollapsedError(f"iteration {iteration}: {verdict.words}. {action}", healthy)


def reward_and_filter(runner: Runner, config: StarPOConfig, iteration: int, turns: Keys) -> Keys:
    """Pay what was played, choose what is learned from, and measure both.

    Args:
        runner: Carries out the stages.
        config: Settings of reward and filter.
        iteration: Updates done before.
        turns: Key of the rollout, by its kind.

    Returns:
        Kind -> key of turns, rewards and selection.
    """
    data = {"turns": turns["turns"]}
    data |= runner.stage(iteration, reward(config.reward, **data))
    data |= runner.stage(iteration, variance_filter(config.filter, **data))
    runner.stage(iteration, diagnose(iteration, **data))
    return data


def _next_rollout(
    runner: Runner, config: StarPOConfig, iteration: int, checkpoint: str
) -> AbstractContextManager[Keys]:
    """The rollout of an iteration, played during the update before it by the checkpoint which that begins with.

    Nothing where the settings want it played afterwards, or the run ends.
    """
    if config.rollout.staleness == 0 or iteration == config.iterations:
        return nullcontext({})
    return runner.beside(iteration, rollout(iteration, config.at(iteration), checkpoint))


def _evaluate_if_due(runner: Runner, config: StarPOConfig, iteration: int, checkpoint: str) -> None:
    """The first and the last checkpoint meet every panel; those in between the training environment's, now and then."""
    is_end = iteration in (0, config.iterations)
    if not is_end and iteration % config.evaluation.every:
        return
    own = config.environment.type
    for cell, environment in (config.panels if is_end else {own: config.environment}).items():
        settings = environment, config.agent, config.rollout, config.evaluation
        runner.stage(iteration, evaluate(iteration, cell, *settings, checkpoint, lineage=runner.store_url))
