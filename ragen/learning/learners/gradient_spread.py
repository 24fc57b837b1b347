"""How gradients of several groups spread: what they have in common, and the noise around it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class GradientSpread:
    """Of n gradients g_1 ... g_n, each of a group (1812.06162, appendix A, names these estimators).

    Attributes:
        num: n.
        norm: Of their mean. 0 without any.
        signal: |mean|^2 - noise / n: unbiased of the squared norm of the expected gradient, so it may be below 0. NaN
            with fewer than two.
        noise: Sum of |g_i - mean|^2 / (n - 1): the trace of their covariance. NaN with fewer than two.
    """

    num: int
    norm: float
    signal: float
    noise: float

    @property
    def signal_to_noise(self) -> float:
        """`signal / noise`, at least 0: the inverse of the noise scale, in groups. NaN where nothing varies."""
        return max(self.signal, 0.0) / self.noise if self.noise > 0 else float("nan")


class GradientSums:
    """Of gradients that come one after the other; they themselves are not kept.

    Attributes:
        num: How many there were.
        total: Their sum. float64 [parameters]; None: there was none.
    """

    def __init__(self) -> None:
        self.num = 0
        self.total: Tensor | None = None
        self._squares = 0.0

    def add(self, gradient: "Tensor") -> None:
        """Take one in. [parameters]"""
        wide = gradient.double()
        self.num, self._squares = self.num + 1, self._squares + float(wide @ wide)
        self.total = wide if self.total is None else self.total.add_(wide)

    def spread(self) -> GradientSpread:
        """How those so far spread."""
        if self.total is None:
            return GradientSpread(0, 0.0, float("nan"), float("nan"))
        num, mean_square = self.num, float(self.total @ self.total) / self.num**2
        noise = max(self._squares - num * mean_square, 0.0) / (num - 1) if num > 1 else float("nan")
        return GradientSpread(num, mean_square**0.5, mean_square - noise / num, noise)


def spread(gradients: "Iterable[Tensor]") -> GradientSpread:
    """Measure gradients one after the other; only their sum is kept. [parameters] each"""
    sums = GradientSums()
    for gradient in gradients:
        sums.add(gradient)
    return sums.spread()
