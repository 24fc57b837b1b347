"""turns, rewards -> selection, and metrics of what was collected, paid and kept."""

from ragen.config.filter import FilterConfig
from ragen.diagnostics.metrics import filter_metrics, metrics_table, reward_metrics, rollout_metrics
from ragen.filter.select import select_groups
from ragen.registry import FILTERS
from ragen.store import Store
from schemas.manifest import Stage
from tasks.stage import Keys, StageWork, stage_task

STAGE = Stage(name="variance_filter", version=2)
OUTPUTS = ("selection", "metrics")


@stage_task(name="variance_filter", task_run_name="{iteration:03d} variance_filter")
def variance_filter(store_url: str, iteration: int, config: FilterConfig, turns: str, rewards: str) -> Keys:
    """Decide which groups are trained on, say why, and measure the data that decided it."""
    store = Store(store_url)
    # how many empty iterations a run bears decides when it stops, not what this keeps
    settings = {**config.model_dump(mode="json", exclude={"max_empty_iterations"}), "iteration": iteration}
    code = {"strategy": FILTERS[config.strategy]}
    work = StageWork(store, STAGE, settings, {"turns": turns, "rewards": rewards}, code=code)
    if not work.is_stored(*OUTPUTS):
        turns_table, rewards_table = store.read_table("turns", turns), store.read_table("rewards", rewards)
        selection = select_groups(turns_table, rewards_table, config)
        num_kept = sum(selection["kept"].to_pylist())
        work.put_table("selection", selection, headline={"num_kept": num_kept, "num_groups": selection.num_rows})
        values = {
            **rollout_metrics(turns_table),
            **reward_metrics(rewards_table, turns_table),
            **filter_metrics(selection),
        }
        work.put_table("metrics", metrics_table(iteration, STAGE.name, values))
    return dict.fromkeys(OUTPUTS, work.key)
