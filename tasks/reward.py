"""turns -> rewards."""

from collections.abc import Iterator, Mapping

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.lookup import needs
from starpo.ragen.core.registry import REWARDS, SCENES
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage

STAGE = Stage(name="reward", version=1)


def reward(config: RewardConfig, turns: str, attempt: int = 0, types: Mapping[str, str] | None = None) -> Work:
    """Compute the rewards of every turn.

    Args:
        config: Settings of the reward.
        turns: Key of the turns.
        attempt: Index of that rollout within the iteration.
        types: Tag -> environment type of the parts of a mixture, for components that read its states. None if the tags
            are the types.
    """
    needed = {word for name in config.components for word in needs(REWARDS, name)}

    def do(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
        rewards = compute_rewards(store.read_table("turns", turns), config, store, types)
        yield Output("rewards", rewards, is_deterministic="store" not in needed)  # a server's answers may vary

    code, settings = {name: REWARDS[name] for name in config.components}, config.effective()
    if "scene" in needed:
        code |= {f"scene of {environment}": target for environment, target in SCENES.items()}
        settings |= {"types": dict(types)} if types else {}
    part = str(attempt) if attempt else ""
    return Work(STAGE, ("rewards",), do, settings, {"turns": turns}, code=code, part=part)
