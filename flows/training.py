"""The training loop: plain Python over stages. Resuming a run is running it again.

checkpoint -> rollout -> reward -> variance_filter -> diagnose -> update -> checkpoint
     |            `-> probe, now and then      |      beside it, with rollout.staleness = 1: the next rollout
     |                                         |`-> rollout:1, ... with rollout.max_attempts, while too few are kept
     |                                         `-> gradient_probe, now and then
     `-> evaluate

Whoever carries out its stages is a `Runner`: one does them, one plans them, one holds a record against them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from starpo.flows.rollback import what_comes
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import CollapsedError, NothingKeptError
from starpo.ragen.evidence.diagnostics.alarm import Alarm, is_due
from starpo.ragen.evidence.diagnostics.online import RolloutUse
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of, num_kept, numbered, of_kind
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

PlayOn = Callable[[int], str]
"""Plays the attempt of this number; returns the key of its turns."""


class Runner:
    """What the loop asks its stages of, and tells how it goes; listening is optional.

    Attributes:
        name: The run's name.
        store_url: Where its artifacts are.
        progress: Where stages say how far they are.
    """

    name: str
    store_url: str
    progress: RunProgress | None = None

    def measured(self, iteration: int) -> Mapping[str, float]:
        """The metrics of an iteration; what it did not measure, such as an update's where there was none, is absent."""
        raise NotImplementedError

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

    def num_kept(self, iteration: int, attempt: int, selection: str) -> float:
        """Groups that the selection of an attempt keeps; NaN, of which no comparison holds: it is not known yet."""
        return num_kept(Store(self.store_url), selection)

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
        play_on: PlayOn | None = None
        if use.should_collect(iteration):
            lag = 1 if ahead else 0
            turns = ahead or runner.stage(iteration, rollout(iteration, now, checkpoint))
            play_on = partial(_play_on, runner, iteration, now, checkpoint)
        else:
            reuse_rollouts(runner, iteration, turns)
        played[iteration] = turns["turns"]
        every = config.diagnostics.probe_every
        if every and iteration % every == 0:
            runner.stage(iteration, probe(now, iteration, checkpoint, first, turns["turns"]))
        data = reward_and_filter(runner, now, iteration, turns, play_on)
        turns = {role: key for role, key in data.items() if kind_of(role) == "turns"}
        every = config.diagnostics.gradients_every
        if every and iteration % every == 0:
            runner.stage(iteration, gradient_probe(now, iteration, checkpoint, first, **data))
        if runner.measured(iteration)["filter/num_kept"] == 0:
            num_empty += 1
            ahead = {}
            use.served_nothing()
            runner.warn(
                f"iteration {iteration}: the filter kept no group ({num_empty} in a row), so there is no update"
            )
            if num_empty >= now.filter.max_empty_iterations:
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
            stale = use.served(runner.measured(iteration))
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
    verdict = alarm.observe(iteration, runner.measured(iteration))
    if is_due(config.diagnostics, verdict):
        healthy = _collected(alarm.healthy, played)
        action = what_comes(runner.name, config, healthy)
        runner.stage(iteration, incident(iteration, healthy, verdict, action, played))
        raise CollapsedError(f"iteration {iteration}: {verdict.words}. {action}", healthy)


def _collected(iteration: int, played: Mapping[int, str]) -> int:
    """When the rollout of an iteration was first used: its success is that of the policy of then (Online-k).

    The iteration itself where that was the run's beginning, to which no run is rolled back.
    """
    return min(other for other, turns in played.items() if turns == played[iteration]) or iteration


def _play_on(runner: Runner, iteration: int, config: StarPOConfig, checkpoint: str, attempt: int) -> str:
    return runner.stage(iteration, rollout(iteration, config, checkpoint, attempt))["turns"]


def reuse_rollouts(runner: Runner, iteration: int, turns: Keys) -> None:
    """An iteration uses rollouts that were played before, or elsewhere: all attempts of one iteration."""
    for attempt, key in enumerate(of_kind(turns, "turns")):
        runner.reuse(iteration, numbered("rollout", attempt), {"turns": key})


def reward_and_filter(
    runner: Runner, config: StarPOConfig, iteration: int, turns: Keys, play_on: PlayOn | None = None
) -> Keys:
    """Pay what was played, choose what is learned from, play on while that is too little, and measure all of it.

    Args:
        runner: Carries out the stages.
        config: Settings of reward and filter, and how many attempts there may be.
        iteration: Updates done before.
        turns: Role -> key of what was played: `turns` and, of further attempts, `turns:1`, ....
        play_on: Plays another attempt. None: what was played is all there is.

    Returns:
        Role -> key of turns, rewards and selection of all attempts.
    """
    data = {role: key for role, key in turns.items() if kind_of(role) == "turns"}  # not the siblings beside them
    attempt = 0
    while True:
        _reward_and_filter_one(runner, config, iteration, attempt, data)
        attempt += 1
        if numbered("turns", attempt) in data:
            continue
        if play_on is None or _is_enough(runner, config, iteration, of_kind(data, "selection")):
            break
        data[numbered("turns", attempt)] = play_on(attempt)
    runner.stage(iteration, diagnose(iteration, config.rollout.max_attempts, config.tags, **data))
    return data


def _reward_and_filter_one(runner: Runner, config: StarPOConfig, iteration: int, attempt: int, data: Keys) -> None:
    """Add the rewards and the selection of one attempt to its turns."""
    turns = data[numbered("turns", attempt)]
    types = {tag: part.type for tag, part in config.environment.tagged().items()} if config.tags else None
    paid = runner.stage(iteration, reward(config.reward, turns, attempt, types))["rewards"]
    work = variance_filter(config.filter, turns, paid, of_kind(data, "selection"))
    data[numbered("rewards", attempt)] = paid
    data[numbered("selection", attempt)] = runner.stage(iteration, work)["selection"]


def _is_enough(runner: Runner, config: StarPOConfig, iteration: int, selections: Sequence[str]) -> bool:
    """Do the attempts so far keep as many groups as are wanted, or may there be no other?"""
    wanted, most = config.filter.num_wanted, config.rollout.max_attempts
    if wanted is None or most == 1:
        return True
    kept = sum(runner.num_kept(iteration, attempt, key) for attempt, key in enumerate(selections))
    is_last = len(selections) >= most
    if is_last and kept < wanted:
        runner.warn(
            f"iteration {iteration}: after {most} rollouts, all that rollout.max_attempts allows, the filter has kept "
            f"{kept:.0f} groups, but filter.num_wanted = {wanted}; the update is on those"
        )
    return is_last or not kept < wanted


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
