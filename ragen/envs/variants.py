"""Named settings of the environments, for listing and playing; any other settings are as good in a configuration."""

from ragen.envs.bandit import BanditSettings
from ragen.envs.base import EnvironmentSettings
from ragen.envs.frozen_lake import FrozenLakeSettings
from ragen.envs.sokoban import SokobanSettings

_DESCRIBED: dict[str, tuple[str, EnvironmentSettings]] = {
    "Bandit": ("two named arms, one pull; the training names", BanditSettings()),
    "BanditHeldOut": ("two named arms, one pull; name pairs not trained on", BanditSettings(names="held_out")),
    "BanditRev": ("the training names with their meanings exchanged", BanditSettings(is_reversed=True)),
    "Sokoban": ("push the box onto the target; 6x6, 1 box", SokobanSettings()),
    "SokobanNewVocab": ("Sokoban drawn with other symbols, W . G C B A @", SokobanSettings(vocabulary="new")),
    "SokobanLarge": ("Sokoban, 8x8 with 2 boxes", SokobanSettings(height=8, width=8, num_boxes=2)),
    "SokobanCoord": ("Sokoban with coordinates below the grid", SokobanSettings(observation="coord")),
    "FrozenLake": ("walk over slippery ice to the goal; 4x4, one step in three goes as intended", FrozenLakeSettings()),
    "FrozenLakeNoSlip": ("the lake without slips: every step goes as intended", FrozenLakeSettings(slip=0.0)),
    "FrozenLakeCoord": ("the slippery lake with coordinates below the grid", FrozenLakeSettings(observation="coord")),
}

VARIANTS: dict[str, EnvironmentSettings] = {name: settings for name, (_, settings) in _DESCRIBED.items()}
"""By name, the variants of PAPER section 4; everything not named is as in the paper."""

DESCRIPTIONS: dict[str, str] = {name: description for name, (description, _) in _DESCRIBED.items()}
"""By the same names, one line each."""
