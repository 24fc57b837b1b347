"""turns -> rewards."""

from collections.abc import Iterator

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.registry import REWARDS
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.store import Store
from starpo.ragen.work import Made, Work
from starpo.schemas.manifest import Stage

STAGE = Stage(name="reward", version=1)


def reward(config: RewardConfig, turns: str) -> Work:
    """Pay every turn for what it did."""

    def do(work: Work, store: Store) -> Iterator[Made]:
        yield Made("rewards", compute_rewards(store.read_table("turns", turns), config))

    code = {name: REWARDS[name] for name in config.components}
    return Work(STAGE, ("rewards",), do, config.model_dump(mode="json"), {"turns": turns}, code=code)
