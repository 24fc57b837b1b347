"""Ablation results with the metrics that a figure draws."""

from collections.abc import Callable, Mapping

import pytest

from starpo.ragen.learning.metrics.table import Series
from starpo.ragen.studies.ablation import AblationResult, CellResult, MatchedDifference, PanelResult
from starpo.ragen.studies.grid import Grid

DIFFERENCE = MatchedDifference(mean=0.2, low=0.1, high=0.3, per_seed={0: 0.2, 1: 0.2}, num_prompts=8)
Metrics = Mapping[int, Mapping[str, Series]]


def panel(is_base: bool, last: float) -> PanelResult:
    curve = {0: 0.2, 20: last}
    return PanelResult(
        first=0.2, last=last, last_iteration=20, last_low=max(0.0, last - 0.1), last_high=min(1.0, last + 0.1),
        peak=last, peak_iteration=20, difference=None if is_base else DIFFERENCE, curve=curve,
        seed_curves={0: curve, 1: {0: 0.2, 20: min(1.0, last + 0.05)}},
    )  # fmt: skip


@pytest.fixture
def study() -> Callable[..., AblationResult]:
    """`study("length", {"vanilla": {0: {"metric": {0: 1.0}}}})`: a result with these metrics, by cell and seed."""

    def study(
        figure: str,
        cells: Mapping[str, Metrics],
        fell: Mapping[str, Mapping[int, int | None]] | None = None,
        numbers: Mapping[str, float] | None = None,
    ) -> AblationResult:
        finding = {"source": "RAGEN, Fig. 0", "claim": "a claim", "numbers": dict(numbers or {})}
        grid = Grid(
            name="mine", preset="bandit", cells={name: {} for name in cells}, seeds=[0, 1], figure=figure,
            finding=finding,
        )  # fmt: skip
        return AblationResult(
            name="mine", grid=grid, panel="bandit",
            cells=[
                CellResult(
                    label=name, values={}, is_base=number == 0, runs={0: f"{name}-0", 1: f"{name}-1"}, errors={},
                    fell=dict((fell or {}).get(name, {})), series={s: dict(of) for s, of in series.items()},
                    panels={"bandit": panel(number == 0, 0.5)},
                )
                for number, (name, series) in enumerate(cells.items())
            ],
        )  # fmt: skip

    return study
