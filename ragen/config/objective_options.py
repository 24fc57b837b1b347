"""Options of individual estimators and surrogates: `update.advantage_options`, `update.surrogate_options`."""

from typing import Literal

from pydantic import Field, model_validator

from starpo.ragen.core.settings import Settings


class TurnGAEOptions(Settings):
    """Options of 'turn_gae'."""

    value_at: Literal["first", "last"] = "first"
    """Token at which the critic's value of a turn is read: its first or its last."""


class GiGPOOptions(Settings):
    """Options of 'gigpo'."""

    step_weight: float = Field(1.0, ge=0, le=100)
    """Weight of the step advantage relative to the episode advantage."""
    normaliser: Literal["none", "std"] = "none"
    """Divisor of the centred returns: none, or the standard deviation (ddof 1) over the same set."""
    over: Literal["episodes", "turns"] = "episodes"
    """Whether a group's mean return is over its episodes, or over their turns, which gives long episodes more weight
    (the public code)."""


class HGPOOptions(GiGPOOptions):
    """Options of 'hgpo'."""

    depth: int = Field(3, ge=1, le=16)
    """Maximum number of past states that distinguish the histories of two turns."""
    alpha: float = Field(1.0, ge=0, le=8)
    """Depth d has weight d ** alpha; turns compared at a larger depth have more history in common."""


class IStarOptions(Settings):
    """Options of 'istar'."""

    step_weight: float = Field(1.0, ge=0, le=100)
    """Weight of the step advantage relative to the episode advantage."""


class MonteCarloOptions(Settings):
    """Options of 'monte_carlo'."""

    continuations: int = Field(8, ge=2, le=1000)
    """Number of continuations that are played from every state before a turn of the kept groups."""


class GDPOOptions(Settings):
    """Options of 'gdpo'."""

    weights: dict[str, float] = Field(default_factory=dict)
    """Component of the reward -> weight of its normalised return; 1 for those that are not named."""


class DualClipOptions(Settings):
    """Options of 'dual_clip'."""

    bound: float = Field(3.0, gt=1, le=100)
    """Bound on the loss of a token with a negative advantage: this many times the size of the advantage."""


class SAPOOptions(Settings):
    """Options of 'sapo'."""

    tau_positive: float = Field(1.0, gt=0, le=100)
    """Sharpness of the gate for positive advantages."""
    tau_negative: float = Field(1.05, gt=0, le=100)
    """Sharpness of the gate for all other advantages."""


class GMPOOptions(Settings):
    """Options of 'gmpo'."""

    log_clip: float = Field(0.4, gt=0, le=20)
    """Clipping bound of a token's log-ratio, in nats."""


class ClipCovOptions(Settings):
    """Options of 'clip_cov'."""

    share: float = Field(2e-4, gt=0, le=1)
    """Share of a mini-batch's tokens, those with the largest covariance, that are candidates for exclusion."""
    low: float = Field(1.0)
    """Exclude only candidates with a covariance above this."""
    high: float = Field(5.0)
    """Exclude only candidates with a covariance below this."""

    @model_validator(mode="after")
    def _leave_room_for_a_covariance(self) -> "ClipCovOptions":
        if not self.low < self.high:
            raise ValueError(
                f"low = {self.low:g} is not below high = {self.high:g}: no token would be excluded, which is 'ppo'; "
                "expected low < high"
            )
        return self


class KLCovOptions(Settings):
    """Options of 'kl_cov'."""

    share: float = Field(2e-4, gt=0, le=1)
    """Share of a mini-batch's tokens, those with the largest covariance, that are penalised."""
    coefficient: float = Field(1.0, ge=0, le=100)
    """Weight of the penalty, the absolute log-ratio in nats where that is more than rounding."""
