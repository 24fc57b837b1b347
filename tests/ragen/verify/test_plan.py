"""Which stages are visited, in which order, with which inputs."""

from datetime import UTC, datetime

import pytest

from ragen.errors import ConfigError
from ragen.store.runs import Run
from ragen.verify.plan import plan_visits

RUN = Run(name="mine", flow="starpo", preset=None, created=datetime.now(UTC), config={})


def iteration(number: int, rollout: int | None = None, **more: dict[str, str]) -> dict[str, dict[str, str]]:
    """Stages of an iteration that did all of its work, its rollout perhaps an earlier one's."""
    source = number if rollout is None else rollout
    return {
        "update": {"samples": f"u{number}", "metrics": f"u{number}", "checkpoint": f"u{number}"},
        "variance_filter": {"selection": f"s{number}", "metrics": f"s{number}"},
        "rollout": {"turns": f"t{source}"},
        "reward": {"rewards": f"r{source}"},
        "evaluate:sokoban": {"episodes": f"e{number}", "metrics": f"e{number}"},
        **more,
    }


RECORDED = {
    0: iteration(0, warm_start={"checkpoint": "w"}),
    1: iteration(1),
    2: {"evaluate:sokoban": {"episodes": "e"}},
}


def test_the_order_is_that_of_the_work_and_inputs_are_what_came_before():
    visits = plan_visits(RUN, RECORDED)
    assert [(v.iteration, v.stage) for v in visits] == [
        (0, "warm_start"), (0, "evaluate"), (0, "rollout"), (0, "reward"), (0, "variance_filter"), (0, "update"),
        (1, "evaluate"), (1, "rollout"), (1, "reward"), (1, "variance_filter"), (1, "update"), (2, "evaluate"),
    ]  # fmt: skip
    by_name = {(v.iteration, v.stage): v for v in visits}
    assert by_name[0, "rollout"].inputs == {"checkpoint": "w"}
    assert by_name[1, "evaluate"].inputs == {"checkpoint": "u0"}
    assert by_name[1, "evaluate"].cell == "sokoban"
    assert by_name[1, "update"].inputs == {
        "checkpoint": "u0", "reference": "w", "turns": "t1", "rewards": "r1", "selection": "s1",
    }  # fmt: skip


def test_work_that_iterations_share_is_visited_once():
    recorded = {0: iteration(0, warm_start={"checkpoint": "w"}), 1: iteration(1, rollout=0)}
    shared = [v.iteration for v in plan_visits(RUN, recorded) if v.stage in ("rollout", "reward")]
    assert shared == [0, 0]
    [second] = [v for v in plan_visits(RUN, recorded, first=1) if v.stage == "update"]
    assert second.inputs["turns"] == "t0"


def test_an_iteration_without_an_update_passes_its_checkpoint_on():
    idle = {name: keys for name, keys in iteration(1).items() if name != "update"}
    visits = plan_visits(RUN, {0: iteration(0, warm_start={"checkpoint": "w"}), 1: idle, 2: iteration(2)})
    assert next(v for v in visits if v.iteration == 2 and v.stage == "rollout").inputs == {"checkpoint": "u0"}


def test_a_replay_says_nothing_of_who_played_its_rollouts():
    replay = RUN.model_copy(update={"flow": "replay"})
    visits = plan_visits(replay, {4: iteration(4), 5: iteration(5)})
    assert [v.inputs for v in visits if v.stage == "rollout"] == [{}, {}]
    assert [v.inputs.get("checkpoint") for v in visits if v.stage == "update"] == [None, "u4"]
    assert all("reference" not in v.inputs for v in visits)


def test_a_range_keeps_what_came_before_it_in_mind():
    [visit] = plan_visits(RUN, RECORDED, first=1, last=1, stages=["rollout"])
    assert visit.inputs == {"checkpoint": "u0"}


@pytest.mark.parametrize(("share", "expected"), [(0.2, [2, 7]), (0.1, [5]), (0.001, [5]), (1.0, list(range(10)))])
def test_a_sample_is_evenly_spread(share, expected):
    recorded = {number: iteration(number) for number in range(10)}
    visits = plan_visits(RUN, recorded, stages=["update"], share=share)
    assert [v.iteration for v in visits] == expected


def test_a_stage_that_does_not_exist_suggests_near_ones():
    with pytest.raises(ConfigError, match="no stage 'rolout'; did you mean rollout"):
        plan_visits(RUN, RECORDED, stages=["rolout"])


def test_a_range_outside_the_run_says_what_there_is():
    with pytest.raises(ConfigError, match=r"--from 7 --to 2 leaves no iteration of run 'mine', which has 0 to 2"):
        plan_visits(RUN, RECORDED, first=7)
    with pytest.raises(ConfigError, match="no stage yet"):
        plan_visits(RUN, {})
