"""Updates are counted, not iterations."""

from starpo.ragen.runs.counting import updates_before, updates_by_iteration


def test_iteration_without_update_not_counted():
    stages = [(0, "rollout"), (1, "rollout"), (1, "update"), (2, "rollout"), (2, "update"), (3, "evaluate:a")]
    assert [updates_before(stages, iteration) for iteration in range(4)] == [0, 0, 1, 2]


def test_replay_counts_updates_before_its_start():
    assert updates_before([(5, "reward"), (5, "update"), (6, "reward"), (7, "evaluate:a")], 7) == 6


def test_iterations_counted_in_one_pass():
    for begin in (0, 5):
        stages = {begin: {"update": {}}, begin + 1: {"rollout": {}}, begin + 2: {"update": {}}, begin + 3: {}}
        names = [(iteration, name) for iteration, of in stages.items() for name in of]
        assert updates_by_iteration(stages) == {number: updates_before(names, number) for number in stages}
