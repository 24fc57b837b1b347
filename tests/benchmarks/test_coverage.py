"""How often 95% intervals hold the truth: 2,000 simulated measurements of each design (docs/intervals.md)."""

import pytest

from starpo.ragen.agents.evaluation import significance
from tests.simulated_episodes import Design, coverage

DESIGNS = [Design(states, episodes) for states in (8, 32, 256) for episodes in (1, 4, 8)]
RARE = [Design(states, 4, a=0.15, b=1.35) for states in (32, 256)]


@pytest.mark.benchmark
def test_coverage_of_intervals(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(significance, "NUM_FLIPS", 1)  # p-values are not measured here
    for design in [*DESIGNS, *RARE]:
        measured = coverage(design, 2000)
        with capsys.disabled():
            print(f"\n{design.num_states} states x {design.num_episodes}, success {design.success:.2f}")
            for name, (share, width) in measured.items():
                print(f"    {name:32}{share:6.1%}  width {width:.3f}")
        if design.num_states == 256:
            for name in ("success", "return", "success difference", "return difference"):
                assert 0.92 <= measured[name][0] <= 0.98, (design, name)
