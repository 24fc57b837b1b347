"""Replay of reward, filter and update over a run's rollouts with other settings: no environment, no engine.

stored turns -> reward -> variance_filter -> update -> checkpoint       compare: the branch's update with the run's

The loop is `tasks.loop.replay`.
"""

from typing import Any

from prefect import flow

from starpo.flows.prefect_execution import InPrefect
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.replay.plan import plan_replay
from starpo.ragen.store import Store
from starpo.tasks.loop.record import RunRecorder
from starpo.tasks.loop.replay import replay_run
from starpo.tasks.loop.run_code import replay_code


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
        store: Store URL. None for that of the serving process (STARPO_STORE).
        run: Name of the replay. None to derive it from the run's name, the range, the changes and the code.

    Returns:
        The replay's name: it is a run like any other.
    """
    url = store or Runtime.current().store
    plan = plan_replay(Store(url), base, start, stop, overrides, should_update)
    code = replay_code(plan.config)
    opened, first = Store(url), plan.checkpoints[plan.start]
    is_needed = should_update and opened.dropped("checkpoint", first) is not None
    with ModelPlacement() as placement:
        record = RunRecorder.open(
            url, run or plan.name(code), flow="replay", preset=plan.base.preset or "", config=plan.config, code=code,
            execution=InPrefect(placement), parameters=plan.parameters, stop=plan.stop, start=plan.start,
        )  # fmt: skip
        with record, placement.learner.restored(opened, [first] if is_needed else []):
            replay_run(record, plan, should_evaluate)
    return record.name
