"""Where goal and holes are, on an observed lake or after a walk over it."""

from collections.abc import Mapping, Sequence
from typing import Any

from starpo.ragen.envs.frozen_lake.claims import read_lake
from starpo.ragen.envs.statements import Scene


def scene(observation: str, actions: Sequence[str], info: Mapping[str, Any]) -> Scene | None:
    """The scene of an observation, and after these actions where there are any; None: it cannot be read.

    Args:
        observation: In any form of the environment.
        actions: Carried out from there on. Where they led, on ice that may be slippery, only `info` knows.
        info: Of the last of them; its `cell` is the player's row and column.
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
