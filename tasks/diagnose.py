"""turns, rewards, selection -> metrics of what was collected, paid and kept."""

from ragen.diagnostics.metrics import filter_metrics, metrics_table, reward_metrics, rollout_metrics
from ragen.store import Store
from schemas.manifest import Stage
from tasks.stage import Keys, StageWork, stage_task

STAGE = Stage(name="diagnose", version=2)


@stage_task(name="diagnose", task_run_name="{iteration:03d} diagnose")
def diagnose(store_url: str, iteration: int, turns: str, rewards: str, selection: str) -> Keys:
    """Measure the data that an iteration learns from."""
    store = Store(store_url)
    inputs = {"turns": turns, "rewards": rewards, "selection": selection}
    work = StageWork(store, STAGE, {"iteration": iteration}, inputs)
    if not work.is_stored("metrics"):
        turns_table, rewards_table = store.read_table("turns", turns), store.read_table("rewards", rewards)
        values = {
            **rollout_metrics(turns_table),
            **reward_metrics(rewards_table, turns_table),
            **filter_metrics(store.read_table("selection", selection)),
        }
        work.put_table("metrics", metrics_table(iteration, STAGE.name, values))
    return {"metrics": work.key}
