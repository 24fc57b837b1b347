"""turns -> rewards."""

from collections.abc import Iterator

from ragen.config.reward import RewardConfig
from ragen.registry import REWARDS
from ragen.reward.compute import compute_rewards
from ragen.store import Store
from ragen.work import Made, Work
from schemas.manifest import Stage

STAGE = Stage(name="reward", version=1)


def reward(config: RewardConfig, turns: str) -> Work:
    """Pay every turn for what it did."""

    def do(work: Work, store: Store) -> Iterator[Made]:
        yield Made("rewards", compute_rewards(store.read_table("turns", turns), config))

    code = {name: REWARDS[name] for name in config.components}
    return Work(STAGE, ("rewards",), do, config.model_dump(mode="json"), {"turns": turns}, code=code)
