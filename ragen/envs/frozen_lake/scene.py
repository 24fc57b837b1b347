"""Positions of the goal and the holes on an observed lake, or after a walk over it."""

from collections.abc import Mapping, Sequence
from typing import Any

from starpo.ragen.envs.frozen_lake.claims import read_lake
from starpo.ragen.envs.statements import Scene


def scene(observation: str, actions: Sequence[str], info: Mapping[str, Any]) -> Scene | None:
    """Return the scene of an observation, after the given actions if any; None if it cannot be parsed.

    Args:
        observation: Observation in any form of the environment.
        actions: Actions taken from there. As the ice may be slippery, their outcome is read from `info`.
        info: Info of the last action; its `cell` is the player's row and column. Without it, the scene is None.
    """
    seen = read_lake(observation)
    if seen is None:
        return None
    player = seen.player
    if actions:
        if "cell" not in info:
            return None
        row, column = info["cell"]
        player = (row, column)
    return Scene(player, {"goal": [seen.goal], "hole": sorted(seen.holes)})
