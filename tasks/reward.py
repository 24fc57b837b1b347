"""turns -> rewards."""

from ragen.config.reward import RewardConfig
from ragen.registry import REWARDS
from ragen.reward.compute import compute_rewards
from ragen.store import Store
from schemas.manifest import Stage
from tasks.stage import Keys, StageWork, stage_task

STAGE = Stage(name="reward", version=1)


@stage_task(name="reward", task_run_name="{iteration:03d} reward")
def reward(store_url: str, iteration: int, config: RewardConfig, turns: str) -> Keys:
    """Pay every turn for what it did."""
    store = Store(store_url)
    code = {name: REWARDS[name] for name in config.components}
    work = StageWork(store, STAGE, config.model_dump(mode="json"), {"turns": turns}, code=code)
    if not work.is_stored("rewards"):
        work.put_table("rewards", compute_rewards(store.read_table("turns", turns), config))
    return {"rewards": work.key}
