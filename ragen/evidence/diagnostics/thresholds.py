"""When a number counts as a sign of collapse, and why then."""

from pydantic import Field

from starpo.ragen.core.settings import Settings


class CollapseThresholds(Settings):
    """Bounds of `collapse`, in units that do not depend on the scale of an environment's rewards."""

    baseline_points: int = Field(5, ge=1)
    """Points whose mean is the 'early' value; nothing is judged before. One point would be mere noise."""
    decay: float = Field(0.8, ge=0.0, lt=1.0)
    """Of the moving average through which all but the gradient norm is seen: about the last five points."""
    patience: int = Field(3, ge=1)
    """Points in a row before a signal is raised: one odd batch is no trend."""
    std_warning: float = Field(0.15, gt=0.0, lt=1.0)
    """Warn below this share of the early in-group reward std, less what a risen success rate explains. A policy that
    learns ends its groups more and more alike: of 13 healthy runs none fell below 0.27, so half of that. RAGEN-2 stops
    at a tenth."""
    success_warning: float = Field(0.75, gt=0.0, le=1.0)
    """Warn below this share of the best success rate so far."""
    success_collapse: float = Field(0.5, gt=0.0, le=1.0)
    """Call it a collapse below this share."""
    success_drop: float = Field(0.1, ge=0.0, le=1.0)
    """Neither, unless the rate is this far below the best: the best of noisy values is too high, above all when low."""
    return_warning: float = Field(0.5, gt=0.0)
    """Warn when the mean return is this many early in-group stds below its best so far."""
    return_collapse: float = Field(1.0, gt=0.0)
    """Call it a collapse at this many: all members have lost what once told the better from the ordinary ones."""
    format_warning: float = Field(0.9, gt=0.0, le=1.0)
    """Warn below this share of the best share of well-formed responses so far, nearly constant in a healthy run."""
    format_collapse: float = Field(0.5, gt=0.0, le=1.0)
    """Call it a collapse below this share: half of the turns are wasted."""
    entropy_low: float = Field(0.1, gt=0.0, lt=1.0)
    """Warn below this share of the early entropy. Learning lowers it by a part; a tenth is one fixed answer."""
    entropy_high: float = Field(2.5, gt=1.0)
    """Warn above this multiple of the early entropy: learning does not raise it so, drifting towards noise does."""
    distinct_share: float = Field(0.25, gt=0.0, lt=1.0)
    """Warn below this share of the early share of distinct responses (the Echo Trap)."""
    spike_factor: float = Field(5.0, gt=1.0)
    """Warn when the gradient norm is this multiple of the median of the points before it, which no spike can move."""
    spike_window: int = Field(10, ge=1)
    """Points of that median, and points for which a spike is remembered."""
    drift: float = Field(0.2, gt=0.0)
    """Warn when an update ends more nats a token away from the policy that sampled. Of 21 healthy runs of the bandit's
    preset, six of them with all groups, the furthest went 0.14."""
