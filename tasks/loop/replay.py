"""The replay loop: reward, filter and update over a run's rollouts with other settings.

stored turns -> reward -> variance_filter -> update -> checkpoint       compare: the branch's update with the run's

Stages and their keys are those of training, so unchanged stages are found in the store, not recomputed. Each update
starts from the branch's own checkpoint, on rollouts that the base run's policy sampled: it is off-policy, more so with
every update, and the comparison measures how far.
"""

from starpo.ragen.learning.control.standstill import NUM_KEPT
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.runs.replay.plan import ReplayPlan
from starpo.ragen.runs.work import Keys
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of, recorded_data
from starpo.ragen.store.records.runs import StageKeys
from starpo.tasks.compare import Side, compare
from starpo.tasks.evaluate import evaluate
from starpo.tasks.loop.runner import Runner
from starpo.tasks.loop.training import reuse_rollouts, reward_and_filter
from starpo.tasks.update import update


def replay_run(runner: Runner, plan: ReplayPlan, should_evaluate: bool) -> None:
    """Run the replay loop.

    Args:
        runner: Carries out the stages, or checks them against a record.
        plan: The replay.
        should_evaluate: Evaluate both checkpoints `stop` on the panel.
    """
    checkpoint = _replay(runner, plan)
    if should_evaluate and plan.should_update:
        _evaluate_ends(runner, plan, checkpoint)


def _replay(runner: Runner, plan: ReplayPlan) -> str:
    """Replay all iterations and return the key of the branch's last checkpoint."""
    config = plan.config
    checkpoints = [plan.checkpoints[number] for number in range(plan.start + 1)]
    teaching = None
    if config.teacher is not None:
        from starpo.tasks.loop.teaching import Teaching

        teaching = Teaching(runner, config, plan.reference, plan.start)
    runner.training_begins()
    for iteration, recorded in plan.iterations.items():
        if runner.is_over:
            break
        turns = {role: key for role, key in recorded_data(recorded).items() if kind_of(role) == "turns"}
        reuse_rollouts(runner, iteration, turns)
        now = config.at(iteration)
        data = reward_and_filter(runner, now, iteration, turns)
        data |= teaching.score(iteration, now, checkpoints[-1], data) if teaching else {}
        if plan.should_update and "credits" in now.update.needs:
            from starpo.ragen.runs.creditable import sampled_by
            from starpo.tasks.loop.crediting import credited

            sampler = sampled_by(Store(runner.store_url), plan.base_config, turns["turns"])
            data |= credited(runner, iteration, now, *sampler, data)
        update_keys: Keys | None = None
        if plan.should_update and runner.metric(iteration, NUM_KEPT) != 0:
            is_kept = runner.is_kept(iteration + 1)
            work = update(now, iteration, checkpoints[-1], plan.reference, data, runner.progress, is_kept=is_kept)
            update_keys = runner.stage(iteration, work)
        elif plan.should_update:
            runner.warn(f"iteration {iteration}: the filter kept no group, so there is no update")
        branch = Side(now.update, data, checkpoints[-1], update_keys)
        _compare(runner, plan, iteration, recorded, branch)
        checkpoints.append(update_keys["checkpoint"] if update_keys else checkpoints[-1])
        runner.retain(checkpoints)
        runner.iteration_done(iteration)
    return checkpoints[-1]


def _compare(runner: Runner, plan: ReplayPlan, iteration: int, recorded: StageKeys, branch: Side) -> None:
    update = recorded.get("update") if plan.should_update else None
    played = plan.base_config.at(iteration)
    base = Side(played.update, recorded_data(recorded), plan.checkpoints[iteration], update)
    rollout = played.rollout
    context = UpdateContext(iteration, plan.config.iterations, 0, rollout.temperature, rollout.max_response_tokens)
    runner.stage(iteration, compare(Store(runner.store_url), context, base, branch, plan.reference))


def _evaluate_ends(runner: Runner, plan: ReplayPlan, checkpoint: str) -> None:
    """Evaluate both ends on the training environment's panel like the base run, so that its results are found."""
    config = plan.config
    cell = config.environment.type
    settings = cell, config.environment, config.agent, config.rollout, config.evaluation
    ends = plan.checkpoints[plan.stop], checkpoint
    of_base, of_branch = (evaluate(plan.stop, *settings, key, lineage=runner.store_url) for key in ends)
    evaluation_keys = runner.unrecorded(plan.stop, of_base)
    runner.reuse(plan.stop, f"evaluate_base:{cell}", {"episodes": evaluation_keys["episodes"]})
    runner.stage(plan.stop, of_branch)
