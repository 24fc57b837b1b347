"""turns -> rewards."""

from collections.abc import Iterator

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.registry import REWARDS
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.store import Store
from starpo.ragen.work import Made, Work
from starpo.schemas.manifest import Stage

STAGE = Stage(name="reward", version=1)


def reward(config: RewardConfig, turns: str, attempt: int = 0) -> Work:
    """Pay every turn for what it did.

    Args:
        config: Of the reward.
        turns: Key of what was played.
        attempt: Which of the iteration's rollouts that is.
    """

    def do(work: Work, store: Store) -> Iterator[Made]:
        yield Made("rewards", compute_rewards(store.read_table("turns", turns), config))

    code = {name: REWARDS[name] for name in config.components}
    settings, part = config.model_dump(mode="json"), str(attempt) if attempt else ""
    return Work(STAGE, ("rewards",), do, settings, {"turns": turns}, code=code, part=part)
