"""turns, rewards, selection -> metrics of what was collected, paid and kept."""

from collections.abc import Iterator

from starpo.ragen.evidence.diagnostics.metrics import filter_metrics, metrics_table, reward_metrics, rollout_metrics
from starpo.ragen.store import Store
from starpo.ragen.work import Made, Work
from starpo.schemas.manifest import Stage

STAGE = Stage(name="diagnose", version=3)


def diagnose(iteration: int, turns: str, rewards: str, selection: str) -> Work:
    """Measure the data that an iteration learns from."""
    inputs = {"turns": turns, "rewards": rewards, "selection": selection}

    def do(work: Work, store: Store) -> Iterator[Made]:
        tables = {kind: store.read_table(kind, key) for kind, key in inputs.items()}
        values = {
            **rollout_metrics(tables["turns"]),
            **reward_metrics(tables["rewards"], tables["turns"]),
            **filter_metrics(tables["selection"]),
        }
        yield Made("metrics", metrics_table(iteration, STAGE.name, values))

    return Work(STAGE, ("metrics",), do, {"iteration": iteration}, inputs)
