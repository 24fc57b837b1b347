"""Spread of the gradients of several groups: the signal they share, and the noise around it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


_ROUNDING = 1e-12
"""Noise below this share of the squared norms is the rounding of their sums, and counts as 0."""


@dataclass(frozen=True)
class GradientSpread:
    """Spread of n gradients g_1 ... g_n, one per group (estimators of 1812.06162, appendix A).

    Attributes:
        num: n.
        norm: Norm of their mean; 0 if n = 0.
        signal: |mean|^2 - noise / n, an unbiased estimate of the squared norm of the expected gradient, so it may be
            negative. NaN if n < 2.
        noise: Sum of |g_i - mean|^2 / (n - 1), the trace of their covariance. NaN if n < 2.
    """

    num: int
    norm: float
    signal: float
    noise: float

    @property
    def signal_to_noise(self) -> float:
        """`max(signal, 0) / noise`, the inverse of the noise scale in groups; NaN if the noise is 0 or NaN."""
        return max(self.signal, 0.0) / self.noise if self.noise > 0 else float("nan")


class GradientSums:
    """Running sums of gradients; the gradients themselves are not kept.

    Attributes:
        num: Number of gradients so far.
        total: Their sum. float64 [parameters]; None before the first.
    """

    def __init__(self) -> None:
        self.num = 0
        self.total: Tensor | None = None
        self._squares = 0.0

    def add(self, gradient: "Tensor") -> None:
        """Add a gradient. [parameters]"""
        wide = gradient.double()
        self.num, self._squares = self.num + 1, self._squares + float(wide @ wide)
        self.total = wide.clone() if self.total is None else self.total.add_(wide)

    def spread(self) -> GradientSpread:
        """Return the spread of the gradients so far."""
        if self.total is None:
            return GradientSpread(0, 0.0, float("nan"), float("nan"))
        num, mean_square = self.num, float(self.total @ self.total) / self.num**2
        around = self._squares - num * mean_square  # sum of |g_i - mean|^2
        around = around if around > _ROUNDING * self._squares else 0.0
        noise = around / (num - 1) if num > 1 else float("nan")
        return GradientSpread(num, mean_square**0.5, mean_square - noise / num, noise)


def spread(gradients: "Iterable[Tensor]") -> GradientSpread:
    """Measure the spread of gradients, [parameters] each, keeping only their sum in memory."""
    sums = GradientSums()
    for gradient in gradients:
        sums.add(gradient)
    return sums.spread()
