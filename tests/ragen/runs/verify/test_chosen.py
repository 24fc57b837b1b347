"""Selection of iterations and stages to verify."""

import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.runs.verify.chosen import check_stages, chosen_iterations


@pytest.mark.parametrize(("share", "expected"), [(0.2, [2, 7]), (0.1, [5]), (0.001, [5]), (1.0, list(range(10)))])
def test_a_sample_is_evenly_spread(share, expected):
    assert sorted(chosen_iterations("mine", range(10), share=share)) == expected


def test_a_range_is_of_what_is_recorded():
    assert chosen_iterations("mine", [0, 1, 4], first=1) == {1, 4}
    assert chosen_iterations("mine", [0, 1, 4], last=3) == {0, 1}


def test_a_stage_that_is_not_recorded_suggests_near_ones():
    recorded = ["warm_start", "evaluate:sokoban", "rollout", "evaluate:bandit"]
    check_stages("mine", ["evaluate", "rollout"], recorded)
    message = "no stage 'rolout'; did you mean rollout. Recorded: warm_start, evaluate, rollout$"
    with pytest.raises(ConfigError, match=message):
        check_stages("mine", ["rolout"], recorded)


def test_a_range_outside_the_run_says_what_there_is():
    with pytest.raises(ConfigError, match=r"--from 7 --to 2 selects no iteration of run 'mine', which has 0 to 2"):
        chosen_iterations("mine", [0, 1, 2], first=7)
    with pytest.raises(ConfigError, match="no stage yet"):
        chosen_iterations("mine", [])
