"""Settings of the curricula: pools by latest success, gates by level."""

from typing import Literal

from pydantic import Field

from starpo.ragen.core.curriculum import CurriculumSettings


class PoolsSettings(CurriculumSettings):
    """Play levels more often the nearer their success is to a target, so neither solved nor impossible ones."""

    type: Literal["pools"] = "pools"
    target: float = Field(0.5, gt=0.0, lt=1.0)
    """Success at which a level is played most. Its weight falls linearly to 0 at no success, and to 0 at full success;
    a level that was not played yet has the weight of the target."""
    floor: float = Field(0.2, ge=0.0, le=1.0)
    """Share of the groups that is dealt by the environment's own shares, whatever the success. 1: no curriculum."""


class GatesSettings(CurriculumSettings):
    """Open level after level: each opens when the one before it is mastered, and stays open."""

    type: Literal["gates"] = "gates"
    threshold: float = Field(0.7, gt=0.0, le=1.0)
    """A level opens when the success of the level before, over its last `window` groups, is at least this. Open levels
    are played by the environment's own shares."""
