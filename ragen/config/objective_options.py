"""Settings of single estimators and surrogates: `update.advantage_options`, `update.surrogate_options`."""

from typing import Literal

from pydantic import Field

from starpo.ragen.core.settings import Settings


class TurnGAEOptions(Settings):
    """Of 'turn_gae'."""

    value_at: Literal["first", "last"] = "first"
    """The critic's value of a turn is that at its first token, or at its last."""


class GiGPOOptions(Settings):
    """Of 'gigpo'."""

    step_weight: float = Field(1.0, ge=0, le=100)
    """Weight of the step advantage beside the episode's."""
    normaliser: Literal["none", "std"] = "none"
    """What centred returns are divided by: nothing, or the standard deviation (ddof 1) of the same set."""
    over: Literal["episodes", "turns"] = "episodes"
    """A group's mean return is over its episodes, or over their turns, so that long ones weigh more (as the public code
    has it)."""


class HGPOOptions(GiGPOOptions):
    """Of 'hgpo'."""

    depth: int = Field(3, ge=1, le=16)
    """States that a turn's history is told apart by, at most."""
    alpha: float = Field(1.0, ge=0, le=8)
    """Weight of depth d is d to this power; deeper ones have more in common."""


class IStarOptions(Settings):
    """Of 'istar'."""

    step_weight: float = Field(1.0, ge=0, le=100)
    """Weight of the step advantage beside the episode's."""


class DualClipOptions(Settings):
    """Of 'dual_clip'."""

    bound: float = Field(3.0, gt=1, le=100)
    """A token with a negative advantage never loses more than this many times it."""


class SAPOOptions(Settings):
    """Of 'sapo'."""

    tau_positive: float = Field(1.0, gt=0, le=100)
    """Sharpness of the gate where the advantage is positive."""
    tau_negative: float = Field(1.05, gt=0, le=100)
    """Where it is not."""


class GMPOOptions(Settings):
    """Of 'gmpo'."""

    log_clip: float = Field(0.4, gt=0, le=20)
    """Bound of a token's log-ratio, nats."""


class ClipCovOptions(Settings):
    """Of 'clip_cov'."""

    share: float = Field(2e-4, gt=0, le=1)
    """Of a mini-batch's tokens, those of largest covariance that are looked at."""
    low: float = Field(1.0)
    """Only covariances above it."""
    high: float = Field(5.0)
    """Only covariances below it."""


class KLCovOptions(Settings):
    """Of 'kl_cov'."""

    share: float = Field(2e-4, gt=0, le=1)
    """Of a mini-batch's tokens, those of largest covariance that are held."""
    coefficient: float = Field(1.0, ge=0, le=100)
    """Weight of their log-ratio's size, a nat."""
