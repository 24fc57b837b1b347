"""Document of estimators beside the true credit of turns."""

from starpo.flows.console.documents.document import JsonDocument
from starpo.ragen.learning.metrics.credit_comparison import Agreement, Calibration
from starpo.ragen.learning.metrics.credit_statistics import Statistic


class ComparedEstimators(JsonDocument):
    """How far estimators agree with the true credit of the turns of an update."""

    artifact: str
    """Key of the artifact `credit_estimates`."""
    num_groups: int
    """Groups of the compared turns."""
    num_trajectories: int
    """Their trajectories."""
    num_turns: int
    """Turns with true credit and an estimate."""
    num_significant: int
    """Turns whose 95% interval of the true advantage excludes 0."""
    noise_share: float
    """Share of the true advantages' mean square that is noise of the Monte Carlo."""
    attainable_within: Statistic | None
    """Rank correlation within trajectories of a perfect estimator, given that noise; null if it cannot be told."""
    attainable_overall: Statistic | None
    """The same over all turns."""
    square_shares: dict[str, float]
    """Kind or position of turns -> their share of the sum of squared true advantages."""
    estimators: list[Agreement]
    """By rank correlation over all turns, the best first; then `random`, and half of the Monte Carlo."""
    calibration: Calibration | None
    """Of the critic's values; null without a critic."""
    methods: dict[str, list[str]]
    """Estimator -> the methods that use it (`run`: the run's own)."""
    left_out: dict[str, str]
    """Method -> why its estimator could not be computed."""
