"""Updates are counted, not iterations."""

from starpo.ragen.runs.counting import updates_before


def test_an_iteration_without_an_update_counts_for_nothing():
    stages = [(0, "rollout"), (1, "rollout"), (1, "update"), (2, "rollout"), (2, "update"), (3, "evaluate:a")]
    assert [updates_before(stages, iteration) for iteration in range(4)] == [0, 0, 1, 2]


def test_replay_counts_updates_before_its_start():
    assert updates_before([(5, "reward"), (5, "update"), (6, "reward"), (7, "evaluate:a")], 7) == 6
