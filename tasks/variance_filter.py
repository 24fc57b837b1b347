"""turns, rewards -> selection."""

from ragen.config.filter import FilterConfig
from ragen.filter.select import select_groups
from ragen.store import Store
from schemas.manifest import Stage
from tasks.stage import Keys, StageWork, stage_task

STAGE = Stage(name="variance_filter", version=1)


@stage_task(name="variance_filter", task_run_name="{iteration:03d} variance_filter", timeout_seconds=600)
def variance_filter(store_url: str, iteration: int, config: FilterConfig, turns: str, rewards: str) -> Keys:
    """Decide which groups are trained on, and say why."""
    store = Store(store_url)
    work = StageWork(store, STAGE, config.model_dump(mode="json"), {"turns": turns, "rewards": rewards})
    if not work.is_stored("selection"):
        selection = select_groups(store.read_table("turns", turns), store.read_table("rewards", rewards), config)
        num_kept = sum(selection["kept"].to_pylist())
        work.put_table("selection", selection, headline={"num_kept": num_kept, "num_groups": selection.num_rows})
    return {"selection": work.key}
