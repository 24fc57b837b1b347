"""The training loop: plain Python over stages. To resume a run, run it again.

checkpoint -> rollout -> reward -> variance_filter -> diagnose -> update -> checkpoint
     |            `-> probe, periodically      |      concurrently, with rollout.staleness = 1: the next rollout
     |                                         |`-> rollout:1, ... with rollout.max_attempts, while too few are kept
     |                                         `-> gradient_probe, periodically
     `-> evaluate, periodically

Its stages are delegated to a `Runner`: one carries them out, one plans them, one compares them with a record.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from starpo.flows.rollback import what_comes
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import CollapsedError, NothingKeptError
from starpo.ragen.learning.control.alarm import Alarm, is_due
from starpo.ragen.learning.control.rollout_use import RolloutUse
from starpo.ragen.learning.control.standstill import why_idle
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of, num_kept, numbered, of_kind
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
from starpo.tasks.warm_start import stored_lessons, warm_start

PlayOn = Callable[[int], str]
"""Plays the attempt with this index and returns the key of its turns."""


class Runner:
    """Executor of the loop's stages, and receiver of its notifications, which are no-ops unless overridden.

    Attributes:
        name: The run's name.
        store_url: URL of the store with its artifacts.
        progress: Receives the progress of stages; None for no progress.
    """

    name: str
    store_url: str
    progress: RunProgress | None = None

    def measured(self, iteration: int) -> Mapping[str, float]:
        """Return the metrics of an iteration; those not measured are absent, e.g. an update's if there was none."""
        raise NotImplementedError

    def stage(self, iteration: int, work: Work) -> Keys:
        """Carry out one stage of an iteration and return its outputs."""
        raise NotImplementedError

    @contextmanager
    def beside(self, iteration: int, work: Work) -> Iterator[Keys]:
        """Carry out one stage concurrently with the block; the yielded dict is filled when the block has ended."""
        keys: Keys = {}
        yield keys
        keys |= self.stage(iteration, work)

    def unrecorded(self, iteration: int, work: Work) -> Keys:
        """Carry out one stage that has no entry of its own in the record, and return its outputs."""
        raise NotImplementedError

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        """Note that an iteration uses artifacts from an earlier iteration or another run."""

    def stored_lessons(self, config: StarPOConfig) -> Keys:
        """Find the stored episodes of other runs that the first checkpoint learns from: role -> key."""
        return stored_lessons(config.policy, self.store_url)

    def num_kept(self, iteration: int, attempt: int, selection: str) -> float:
        """Count the groups that the selection of an attempt keeps; NaN, for which comparisons are false, if unknown."""
        return num_kept(Store(self.store_url), selection)

    def warn(self, message: str) -> None:
        """Warn the user."""

    def note(self, iteration: int, values: Mapping[str, float]) -> None:
        """Report metrics that no stage measures, as they follow from stored data."""

    def retain(self, checkpoints: Sequence[str]) -> None:
        """Apply the run's retention settings to its checkpoints so far, from the first to the newest."""

    def training_begins(self) -> None:
        """Note that training begins, as the time before is not used to estimate the time left."""

    def iteration_done(self, iteration: int) -> None:
        """Note that an iteration is complete."""


def train(runner: Runner, config: StarPOConfig) -> None:
    """Run the training loop.

    Args:
        runner: Carries out the stages, or only derives their keys when a run is planned (`flows.plan`).
        config: All settings.

    Raises:
        NothingKeptError: If the filter kept no group in too many consecutive iterations.
        CollapsedError: If the run collapses, and the settings demand that it ends then.
    """
    begin = warm_start(config, runner.stored_lessons(config), runner.progress)
    first = checkpoint = runner.stage(0, begin)["checkpoint"]
    turns: Keys = {}
    ahead: Keys = {}  # the next rollout, if it was played concurrently with the last update
    lag = 0  # number of updates by which the sampling policy is behind when its rollout is first used
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
            turns = ahead or runner.stage(iteration, rollout(iteration, now, checkpoint, progress=runner.progress))
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
                    f"the filter kept no group in {num_empty} iterations in a row: "
                    f"{why_idle(runner.measured(iteration))}. "
                    f"`ragen show {runner.name} --iteration {iteration}` says why each group was dropped"
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
    """End the run if the verdict and its settings require it; `played` maps iterations to keys of turns.

    Raises:
        CollapsedError: If the verdict reaches the configured severity; `flows.rollback` decides what follows.
    """
    verdict = alarm.observe(iteration, runner.measured(iteration))
    if is_due(config.diagnostics, verdict):
        healthy = _collected(alarm.healthy, played)
        action = what_comes(runner.name, config, healthy)
        runner.stage(iteration, incident(iteration, healthy, verdict, action, played))
        raise CollapsedError(f"iteration {iteration}: {verdict.words}. {action}", healthy)


def _collected(iteration: int, played: Mapping[int, str]) -> int:
    """Return the iteration that first used this iteration's rollout, whose policy its success measures (Online-k).

    Returns the iteration itself if that is iteration 0, to which no run is rolled back.
    """
    return min(other for other, turns in played.items() if turns == played[iteration]) or iteration


def _play_on(runner: Runner, iteration: int, config: StarPOConfig, checkpoint: str, attempt: int) -> str:
    return runner.stage(iteration, rollout(iteration, config, checkpoint, attempt, runner.progress))["turns"]


def reuse_rollouts(runner: Runner, iteration: int, turns: Keys) -> None:
    """Note that an iteration uses all attempts of an earlier iteration's, or another run's, rollout."""
    for attempt, key in enumerate(of_kind(turns, "turns")):
        runner.reuse(iteration, numbered("rollout", attempt), {"turns": key})


def reward_and_filter(
    runner: Runner, config: StarPOConfig, iteration: int, turns: Keys, play_on: PlayOn | None = None
) -> Keys:
    """Compute rewards, select groups, play further attempts while too few are kept, and diagnose all of the data.

    Args:
        runner: Carries out the stages.
        config: Settings of reward and filter, and the maximum number of attempts.
        iteration: Updates completed before it.
        turns: Role -> key of the turns: `turns` and, for further attempts, `turns:1`, ....
        play_on: Plays another attempt. None to use only the given turns.

    Returns:
        Role -> key of turns, rewards and selection of all attempts.
    """
    data = {role: key for role, key in turns.items() if kind_of(role) == "turns"}  # without siblings
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
    """Whether the attempts so far keep as many groups as wanted, or no further attempt is allowed."""
    wanted, most = config.filter.num_wanted, config.rollout.max_attempts
    if wanted is None or most == 1:
        return True
    kept = sum(runner.num_kept(iteration, attempt, key) for attempt, key in enumerate(selections))
    is_last = len(selections) >= most
    if is_last and kept < wanted:
        runner.warn(
            f"iteration {iteration}: after {most} rollouts, all that rollout.max_attempts allows, the filter has kept "
            f"{kept:.0f} groups, but filter.num_wanted = {wanted}; the update uses those"
        )
    return is_last or not kept < wanted


def _next_rollout(
    runner: Runner, config: StarPOConfig, iteration: int, checkpoint: str
) -> AbstractContextManager[Keys]:
    """Play the rollout of an iteration during the preceding update, with the checkpoint that this update starts from.

    A no-op if the settings require it to be played afterwards, or the run ends.
    """
    if config.rollout.staleness == 0 or iteration == config.iterations:
        return nullcontext({})
    return runner.beside(iteration, rollout(iteration, config.at(iteration), checkpoint))


def _evaluate_if_due(runner: Runner, config: StarPOConfig, iteration: int, checkpoint: str) -> None:
    """Evaluate the first and last checkpoint on every panel, others periodically on the training environment's."""
    is_end = iteration in (0, config.iterations)
    if not is_end and iteration % config.evaluation.every:
        return
    own = config.environment.type
    for cell, environment in (config.panels if is_end else {own: config.environment}).items():
        settings = environment, config.agent, config.rollout, config.evaluation
        work = evaluate(iteration, cell, *settings, checkpoint, lineage=runner.store_url, progress=runner.progress)
        runner.stage(iteration, work)
