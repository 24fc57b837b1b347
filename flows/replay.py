"""Replay of reward, filter and update over a run's rollouts with other settings: no environment, no engine.

stored turns -> reward -> variance_filter -> update -> checkpoint       compare: the branch's update with the run's

Stages and their keys are those of the flow `starpo`, so unchanged stages are found in the store, not recomputed. Each
update starts from the branch's own checkpoint, on rollouts that the base run's policy sampled: it is off-policy, more
so with every update, and the comparison measures how far.
"""

from typing import Any

from prefect import flow

from starpo.flows.prefect_execution import InPrefect
from starpo.flows.record import RunRecorder
from starpo.flows.run_code import replay_code
from starpo.flows.training import Runner, reuse_rollouts, reward_and_filter
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.runs.replay.plan import ReplayPlan, plan_replay
from starpo.ragen.runs.work import Keys
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of, recorded_data
from starpo.ragen.store.keeping.retention import left_as_found
from starpo.ragen.store.records.runs import StageKeys
from starpo.tasks.compare import Side, compare
from starpo.tasks.evaluate import evaluate
from starpo.tasks.update import update


@flow(name="replay", log_prints=False, validate_parameters=True)
def replay(
    base: str,
    start: int = 0,
    stop: int | None = None,
    overrides: dict[str, Any] | None = None,
    should_update: bool = True,
    should_evaluate: bool = False,
    store: str | None = None,
    run: str | None = None,
) -> str:
    """Replay iterations of a run with other settings of reward, filter and update, and compare.

    Args:
        base: The run whose rollouts are replayed.
        start: The checkpoint to start from; checkpoint n is the one after n updates.
        stop: The checkpoint to end at. None for the run's last one.
        overrides: Individual settings by dotted path, such as {"filter.keep": 0.5}.
        should_update: Whether to replay updates; False for reward and filter only.
        should_evaluate: Evaluate both checkpoints `stop`, the branch's and the run's, on the panel.
        store: Store URL. None for that of the serving process (RAGEN_STORE).
        run: Name of the replay. None to derive it from the run's name, the range, the changes and the code.

    Returns:
        The replay's name: it is a run like any other.
    """
    url = store or Runtime.current().store
    plan = plan_replay(Store(url), base, start, stop, overrides, should_update)
    code = replay_code(plan.config)
    record = RunRecorder.open(
        url, run or plan.name(code), flow="replay", preset=plan.base.preset or "", config=plan.config, code=code,
        execution=InPrefect(), parameters=plan.parameters, stop=plan.stop, start=plan.start,
    )  # fmt: skip
    with record, left_as_found(Store(url), [plan.checkpoints[plan.start], plan.checkpoints[plan.stop]]):
        carry_out(record, plan, should_evaluate)
    return record.name


def carry_out(runner: Runner, plan: ReplayPlan, should_evaluate: bool) -> None:
    """Run the replay loop.

    Args:
        runner: Carries out the stages, or checks them against a record (`flows.walk`).
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
    runner.training_begins()
    for iteration, recorded in plan.iterations.items():
        turns = {role: key for role, key in recorded_data(recorded).items() if kind_of(role) == "turns"}
        reuse_rollouts(runner, iteration, turns)
        now = config.at(iteration)
        data = reward_and_filter(runner, now, iteration, turns)
        made: Keys | None = None
        if plan.should_update and runner.measured(iteration)["filter/num_kept"]:
            made = runner.stage(iteration, update(now, iteration, checkpoints[-1], plan.reference, **data))
        elif plan.should_update:
            runner.warn(f"iteration {iteration}: the filter kept no group, so there is no update")
        branch = Side(now.update, data, checkpoints[-1], made)
        _compare(runner, plan, iteration, recorded, branch)
        checkpoints.append(made["checkpoint"] if made else checkpoints[-1])
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
    made = runner.unrecorded(plan.stop, of_base)
    runner.reuse(plan.stop, f"evaluate_base:{cell}", {"episodes": made["episodes"]})
    runner.stage(plan.stop, of_branch)
