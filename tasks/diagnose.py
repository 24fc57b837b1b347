"""turns, rewards, selection -> metrics of the rollout, the rewards and the filter."""

from collections.abc import Iterator, Sequence

from starpo.ragen.learning.metrics.iteration import (
    attempt_metrics,
    filter_metrics,
    metrics_by_tag,
    reward_metrics,
    rollout_metrics,
)
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import of_kind, read_attempts
from starpo.schemas.manifest import Stage

STAGE = Stage(name="diagnose", version=3)


def diagnose(iteration: int, max_attempts: int = 1, tags: Sequence[str] = (), **data: str) -> Work:
    """Measure the training data of an iteration.

    Args:
        iteration: Updates completed before it.
        max_attempts: Maximum number of rollouts per iteration; if more than one, their cost is measured too.
        tags: Tags of the parts of a mixture, each of which is also measured separately. Empty if it is not a mixture.
        data: Role -> key of turns, rewards and selection of all attempts.
    """

    def do(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
        tables = {kind: read_attempts(store, kind, data) for kind in ("turns", "rewards", "selection")}
        values = {
            **rollout_metrics(tables["turns"]),
            **reward_metrics(tables["rewards"], tables["turns"]),
            **filter_metrics(tables["selection"]),
        }
        values |= metrics_by_tag(tables["turns"], tables["rewards"], tables["selection"], tags)
        if max_attempts > 1:
            values |= attempt_metrics(tables["selection"], len(of_kind(data, "selection")))
        yield Output("metrics", metrics_table(iteration, STAGE.name, values))

    settings = {
        "iteration": iteration,
        **({"max_attempts": max_attempts} if max_attempts > 1 else {}),
        **({"tags": list(tags)} if tags else {}),
    }
    return Work(STAGE, ("metrics",), do, settings, data)
