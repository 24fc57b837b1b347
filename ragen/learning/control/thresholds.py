"""Thresholds at which a metric counts as a sign of collapse, and their justification."""

from pydantic import Field

from starpo.ragen.core.settings import Settings


class CollapseThresholds(Settings):
    """Thresholds of `collapse`, in units independent of the reward scale of an environment."""

    baseline_points: int = Field(5, ge=1)
    """Number of points whose mean is the 'early' value; nothing is judged before. A single point would be noise."""
    decay: float = Field(0.8, ge=0.0, lt=1.0)
    """Decay of the moving average applied to all metrics except those of an update: about the last five points."""
    patience: int = Field(3, ge=1)
    """Consecutive points before a signal is raised: one unusual batch is not a trend."""
    std_warning: float = Field(0.15, gt=0.0, lt=1.0)
    """Warn below this share of the early in-group reward std, after discounting the fall explained by a higher success
    rate. As a policy learns, the members of a group end more and more alike: of 13 healthy runs none fell below 0.27,
    so the default is about half of that. RAGEN-2 stops at a tenth."""
    success_warning: float = Field(0.75, gt=0.0, le=1.0)
    """Warn below this share of the best success rate so far."""
    success_collapse: float = Field(0.5, gt=0.0, le=1.0)
    """Signal a collapse below this share."""
    success_drop: float = Field(0.1, ge=0.0, le=1.0)
    """Minimum absolute fall for either: the maximum of noisy values is biased upwards, especially if they are low."""
    return_warning: float = Field(0.5, gt=0.0)
    """Warn when the mean return is this many early in-group stds below its best so far."""
    return_collapse: float = Field(1.0, gt=0.0)
    """Signal a collapse at this many: all members have lost what once distinguished the better from the average."""
    format_warning: float = Field(0.9, gt=0.0, le=1.0)
    """Warn below this share of the best share of well-formed responses so far, nearly constant in a healthy run."""
    format_collapse: float = Field(0.5, gt=0.0, le=1.0)
    """Signal a collapse below this share: half of the turns are wasted."""
    entropy_low: float = Field(0.1, gt=0.0, lt=1.0)
    """Warn below this share of the early entropy. Learning lowers it in part; a tenth means a fixed answer."""
    entropy_high: float = Field(2.5, gt=1.0)
    """Warn above this multiple of the early entropy: learning does not raise it this far, a drift to noise does."""
    distinct_share: float = Field(0.25, gt=0.0, lt=1.0)
    """Warn below this share of the early share of distinct responses (the Echo Trap)."""
    spike_factor: float = Field(5.0, gt=1.0)
    """Warn when the gradient norm exceeds this multiple of the median of earlier points, which is robust to spikes."""
    spike_window: int = Field(10, ge=1)
    """Number of points of that median, and number of points for which a spike holds."""
    drift: float = Field(0.2, gt=0.0)
    """Warn when an update ends more than this many nats per token from the sampling policy. Over 21 healthy runs of the
    bandit's preset, six of them with all groups, the maximum was 0.14."""
