"""The training loop: plain Python over stages. To resume a run, run it again.

checkpoint -> rollout -> reward -> variance_filter -> diagnose -> update -> checkpoint
     |            |`-> probe, periodically     |      concurrently, with rollout.staleness = 1: the next rollout
     |            `-> teacher, if there is one |`-> rollout:1, ... with rollout.max_attempts, while too few are kept
     |                                         |`-> credit, if the update trains on it
     |                                         `-> gradient_probe, periodically
     `-> evaluate, periodically

Its stages are delegated to a `Runner`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import CollapsedError, NothingKeptError
from starpo.ragen.learning.control.alarm import Alarm, is_due
from starpo.ragen.learning.control.collapse import WATCHED
from starpo.ragen.learning.control.rollout_use import RolloutUse
from starpo.ragen.learning.control.standstill import EXPLAINING, JUDGED, NUM_KEPT, why_idle
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store.attempts import kind_of, numbered, of_kind
from starpo.tasks.diagnose import diagnose
from starpo.tasks.evaluate import evaluate
from starpo.tasks.loop.rollback import describe_outcome
from starpo.tasks.loop.runner import Runner
from starpo.tasks.probe import probe
from starpo.tasks.reward import reward
from starpo.tasks.rollout import rollout
from starpo.tasks.update import update
from starpo.tasks.variance_filter import variance_filter
from starpo.tasks.warm_start import warm_start

PlayAttempt = Callable[[int], Keys]
"""Plays the attempt with this index and returns its keys."""


def train(runner: Runner, config: StarPOConfig) -> None:
    """Run the training loop.

    Args:
        runner: Carries out the stages, or only derives their keys.
        config: All settings.

    Raises:
        NothingKeptError: If the filter kept no group in too many consecutive iterations.
        CollapsedError: If the run collapses, and the settings demand that it ends then.
    """
    stored = runner.episode_keys(config)
    should_render = False
    if stored:
        from starpo.tasks.first_checkpoint.stored_episodes import has_texts

        should_render = has_texts(stored, runner.store_url)
    begin = warm_start(config, stored, runner.progress, should_render=should_render)
    first = checkpoint = runner.stage(0, begin)["checkpoint"]
    turns: Keys = {}
    data: Keys = {}  # turns, rewards and selections of the newest rollout
    levels = ""  # the curriculum that it followed
    ahead: Keys = {}  # the next rollout, if it was played concurrently with the last update
    lag = 0  # number of updates by which the sampling policy is behind when its rollout is first used
    checkpoints = [first]
    played: dict[int, str] = {}
    sampled_by = config, first  # settings and checkpoint of the newest rollout
    alarm = Alarm()
    use = RolloutUse(config)
    num_empty = 0
    teaching = None
    if config.teacher is not None and config.iterations:
        from starpo.tasks.loop.teaching import Teaching

        teaching = Teaching(runner, config, first)
    _evaluate_if_due(runner, config, 0, checkpoint)
    runner.training_begins()
    for iteration in range(config.iterations):
        if runner.is_over:
            return
        now = config.at(iteration)
        play_attempt: PlayAttempt | None = None
        if use.should_collect(iteration):
            lag = 1 if ahead else 0
            sampled_by = now, checkpoints[-1 - lag]
            if ahead:
                levels = ahead["curriculum"]
            elif following := _curriculum(iteration, now, levels, data):
                levels = runner.stage(iteration, following)["curriculum"]
            play_attempt = partial(_play_attempt, runner, iteration, now, checkpoint, levels)
            turns = ahead or play_attempt(0)
        else:
            reuse_rollouts(runner, iteration, turns)
        played[iteration] = turns["turns"]
        every = config.diagnostics.probe_every
        if every and iteration % every == 0:
            runner.stage(iteration, probe(now, iteration, checkpoint, first, turns["turns"]))
        data = reward_and_filter(runner, now, iteration, turns, play_attempt)
        turns = {role: key for role, key in data.items() if kind_of(role) == "turns"}
        data |= teaching.score(iteration, now, checkpoint, data) if teaching else {}
        if "credits" in now.update.needs:
            from starpo.tasks.loop.crediting import credited

            data |= credited(runner, iteration, now, *sampled_by, data)
        every = config.diagnostics.gradients_every
        if every and iteration % every == 0:
            from starpo.tasks.gradient_probe import gradient_probe

            runner.stage(iteration, gradient_probe(now, iteration, checkpoint, first, **data))
        if runner.metric(iteration, NUM_KEPT) == 0:
            num_empty += 1
            ahead = {}
            use.served_nothing()
            runner.warn(
                f"iteration {iteration}: the filter kept no group ({num_empty} in a row), so there is no update"
            )
            if num_empty >= now.filter.max_empty_iterations:
                raise NothingKeptError(
                    f"the filter kept no group in {num_empty} iterations in a row: "
                    f"{why_idle(runner.measured(iteration, (*JUDGED, *EXPLAINING)))}. "
                    f"`starpo show {runner.name} --iteration {iteration}` says why each group was dropped"
                )
        else:
            num_empty = 0
            with _next_rollout(runner, config, iteration + 1, checkpoint, levels, data) as ahead:
                progress, is_kept = runner.progress, runner.is_kept(iteration + 1)
                work = update(now, iteration, checkpoint, first, data, progress, is_kept=is_kept)
                checkpoint = runner.stage(iteration, work)["checkpoint"]
            runner.note(iteration, {"update/staleness": lag + use.num_updates})
            stale = use.served(runner.measured(iteration, use.watched))
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
        CollapsedError: If the verdict reaches the configured severity; `tasks.loop.rollback` decides what follows.
    """
    verdict = alarm.observe(iteration, runner.measured(iteration, WATCHED))
    if is_due(config.diagnostics, verdict):
        healthy = _collected(alarm.healthy, played)
        from starpo.tasks.incident import incident

        action = describe_outcome(runner.name, config, healthy)
        runner.stage(iteration, incident(iteration, healthy, verdict, action, played))
        raise CollapsedError(f"iteration {iteration}: {verdict.words}. {action}", healthy)


def _collected(iteration: int, played: Mapping[int, str]) -> int:
    """Return the iteration that first used this iteration's rollout, whose policy its success measures (Online-k).

    Returns the iteration itself if that is iteration 0, to which no run is rolled back.
    """
    return min(other for other, turns in played.items() if turns == played[iteration]) or iteration


def _play_attempt(
    runner: Runner, iteration: int, config: StarPOConfig, checkpoint: str, levels: str, attempt: int
) -> Keys:
    return runner.stage(iteration, rollout(iteration, config, checkpoint, attempt, runner.progress, levels))


def _curriculum(iteration: int, config: StarPOConfig, levels: str, data: Keys) -> Work | None:
    """Return the stage of the shares that an iteration's rollout follows, from those of the rollout before it and its
    data; None without a curriculum."""
    if config.curriculum is None:
        return None
    from starpo.tasks.curriculum import curriculum

    return curriculum(iteration, config, levels, of_kind(data, "selection"))


def reuse_rollouts(runner: Runner, iteration: int, turns: Keys) -> None:
    """Note that an iteration uses all attempts of an earlier iteration's, or another run's, rollout."""
    for attempt, key in enumerate(of_kind(turns, "turns")):
        runner.reuse(iteration, numbered("rollout", attempt), {"turns": key})


def reward_and_filter(
    runner: Runner, config: StarPOConfig, iteration: int, turns: Keys, play_attempt: PlayAttempt | None = None
) -> Keys:
    """Compute rewards, select groups, play further attempts while too few are kept, and diagnose all of the data.

    Args:
        runner: Carries out the stages.
        config: Settings of reward and filter, and the maximum number of attempts.
        iteration: Updates completed before it.
        turns: Role -> key of the turns: `turns` and, for further attempts, `turns:1`, ....
        play_attempt: Plays another attempt. None to use only the given turns.

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
        if play_attempt is None or _is_enough(runner, config, iteration, of_kind(data, "selection")):
            break
        data[numbered("turns", attempt)] = play_attempt(attempt)["turns"]
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
    """Whether the attempts so far keep as many groups as wanted, as far as is known, or no further one is allowed."""
    wanted, most = config.filter.num_wanted, config.rollout.max_attempts
    if wanted is None or most == 1:
        return True
    counts = [runner.num_kept(iteration, attempt, key) for attempt, key in enumerate(selections)]
    if None in counts:
        return True
    kept = sum(count for count in counts if count is not None)
    is_last = len(selections) >= most
    if is_last and kept < wanted:
        runner.warn(
            f"iteration {iteration}: after {most} rollouts, all that rollout.max_attempts allows, the filter has kept "
            f"{kept} groups, but filter.num_wanted = {wanted}; the update uses those"
        )
    return is_last or kept >= wanted


@contextmanager
def _next_rollout(
    runner: Runner, config: StarPOConfig, iteration: int, checkpoint: str, levels: str, data: Keys
) -> Iterator[Keys]:
    """Play the rollout of an iteration during the preceding update, with the checkpoint that this update starts from.

    A no-op if the settings require it to be played afterwards, or the run ends. The curriculum that it follows is
    known before the update, but recorded after it, so that a record never runs ahead of its iteration.
    """
    if config.rollout.staleness == 0 or iteration == config.iterations:
        yield {}
        return
    now = config.at(iteration)
    following = _curriculum(iteration, now, levels, data)
    if following:
        levels = runner.unrecorded(iteration, following)["curriculum"]
    with runner.concurrently(iteration, rollout(iteration, now, checkpoint, curriculum=levels)) as ahead:
        yield ahead
        if following:
            levels = runner.stage(iteration, following)["curriculum"]
    ahead["curriculum"] = levels


def _evaluate_if_due(runner: Runner, config: StarPOConfig, iteration: int, checkpoint: str) -> None:
    """Evaluate the first and last checkpoint on every panel, others periodically on the training environment's."""
    is_end = iteration in (0, config.iterations)
    if not is_end and iteration % config.evaluation.every:
        return
    training_cell = config.environment.type
    for cell, environment in (config.panels if is_end else {training_cell: config.environment}).items():
        settings = environment, config.agent, config.rollout, config.evaluation
        work = evaluate(iteration, cell, *settings, checkpoint, lineage=runner.store_url, progress=runner.progress)
        runner.stage(iteration, work)
