"""turns, rewards -> selection."""

from ragen.config.filter import FilterConfig
from ragen.filter.select import select_groups
from ragen.registry import FILTERS
from ragen.store import Store
from schemas.manifest import Stage
from tasks.stage import Keys, StageWork, stage_task

STAGE = Stage(name="variance_filter", version=3)


@stage_task(name="variance_filter", task_run_name="{iteration:03d} variance_filter")
def variance_filter(store_url: str, iteration: int, config: FilterConfig, turns: str, rewards: str) -> Keys:
    """Decide which groups are trained on, and say why. Iterations that share a rollout share its selection."""
    store = Store(store_url)
    # how many empty iterations a run bears decides when it stops, not what this keeps
    settings = config.model_dump(mode="json", exclude={"max_empty_iterations"})
    code = {"strategy": FILTERS[config.strategy]}
    work = StageWork(store, STAGE, settings, {"turns": turns, "rewards": rewards}, code=code)
    if not work.is_stored("selection"):
        selection = select_groups(store.read_table("turns", turns), store.read_table("rewards", rewards), config)
        num_kept = sum(selection["kept"].to_pylist())
        work.put_table("selection", selection, headline={"num_kept": num_kept, "num_groups": selection.num_rows})
    return {"selection": work.key}
