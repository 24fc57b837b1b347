"""Named settings of the environments, for listing and playing; any other settings are as good in a configuration."""

from dataclasses import dataclass

from ragen.envs.bandit import BanditSettings
from ragen.envs.base import EnvironmentSettings
from ragen.envs.frozen_lake import FrozenLakeSettings
from ragen.envs.sokoban import SokobanSettings


@dataclass(frozen=True)
class Variant:
    """Settings that have a name, and one line about them."""

    description: str
    settings: EnvironmentSettings


VARIANTS: dict[str, Variant] = {
    "Bandit": Variant("two named arms, one pull; the training names", BanditSettings()),
    "BanditHeldOut": Variant(
        "two named arms, one pull; pairs of names not trained on", BanditSettings(names="held_out")
    ),
    "BanditRev": Variant("the training names with their meanings exchanged", BanditSettings(is_reversed=True)),
    "Sokoban": Variant("push the box onto the target; 6x6, 1 box", SokobanSettings()),
    "SokobanNewVocab": Variant("Sokoban drawn with other symbols, W . G C B A @", SokobanSettings(vocabulary="new")),
    "SokobanLarge": Variant("Sokoban, 8x8 with 2 boxes", SokobanSettings(height=8, width=8, num_boxes=2)),
    "SokobanCoord": Variant("Sokoban with coordinates below the grid", SokobanSettings(observation="coord")),
    "FrozenLake": Variant("walk over ice to the goal; 4x4, one step in three goes as intended", FrozenLakeSettings()),
    "FrozenLakeNoSlip": Variant("the lake without slips: steps go as intended", FrozenLakeSettings(slip=0.0)),
    "FrozenLakeCoord": Variant("the slippery lake with coordinates below", FrozenLakeSettings(observation="coord")),
}
"""By name, the variants of PAPER section 4; everything not named is as in the paper."""
