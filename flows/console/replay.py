"""What `ragen replay` does: check, run the deployment `replay/updates`, follow it, print what it found."""

from typing import Any

from starpo.flows.console.terminal import Console
from starpo.flows.console.train import follow_deployment
from starpo.flows.replay_summary import print_comparison
from starpo.flows.run_code import replay_code
from starpo.ragen.recompute.replay.plan import plan_replay
from starpo.ragen.store import Store


def replay_run(
    store: Store,
    base: str,
    *,
    start: int,
    stop: int | None,
    overrides: dict[str, Any],
    should_update: bool,
    should_evaluate: bool,
    store_url: str | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Replay a run on the local server and print the comparison.

    Args:
        store: Where the run is.
        base: Its name.
        start: Checkpoint to start from.
        stop: Checkpoint to end at. None: the last one.
        overrides: Settings to change, by dotted path.
        should_update: False: reward and filter only.
        should_evaluate: Evaluate both ends.
        store_url: The store as the user named it. None: the configured one.
        name: Of the replay. None: a name made of what it does.
        as_json: Print JSON alone; progress goes to the error output.
    """
    plan = plan_replay(store, base, start, stop, overrides, should_update)  # what cannot be done fails here
    code = replay_code(plan.config)
    if name is not None:  # a name of the user's own must not belong to another run
        store.runs.create(
            name, flow="replay", preset=plan.base.preset, config=plan.config.model_dump(mode="json"),
            parameters=plan.parameters, code=code,
        )  # fmt: skip
    asked = {
        "base": base,
        "start": start,
        "stop": plan.stop,
        "overrides": overrides or None,
        "should_update": None if should_update else False,
        "should_evaluate": should_evaluate or None,
        "store": store_url,
        "run": name,
    }
    parameters = {key: value for key, value in asked.items() if value is not None}
    run = name or plan.name(code)
    follow_deployment("replay/updates", parameters, store, run, Console(stderr=as_json))
    print_comparison(store, run, as_json)
