"""Stored gradients of groups: collected by iteration and bucket, and drawn."""

from starpo.ragen.evidence.diagnostics.gradients import draw_gradients, measured


def test_metrics_are_collected_by_iteration_and_bucket() -> None:
    names = {"bucket_3/num_groups": 2.0, "bucket_1/task_norm": 0.5, "bucket_3/task_snr": 0.25}
    series = {f"gradients/{name}": {10: value} for name, value in names.items()} | {"rollout/entropy": {0: 1.0}}
    found = measured(series)
    assert found == {10: {1: {"task_norm": 0.5}, 3: {"num_groups": 2.0, "task_snr": 0.25}}}
    assert list(found[10]) == [1, 3]


def test_picture_has_a_panel_an_iteration() -> None:
    bucket = {"num_groups": 2.0, "reward_std": 0.5, "task_norm": 1.0, "task_snr": 0.2, "entropy_norm": 0.1}
    found = {iteration: {1: {**bucket, "reward_std": 0.0}, 6: bucket} for iteration in range(0, 100, 10)}
    drawn = draw_gradients("a <run>", found)
    assert drawn == draw_gradients("a <run>", found)
    assert drawn.count("iteration ") == 6
    for text in ("Gradients of a &lt;run&gt;", "iteration 0<", "iteration 90<", ">task<", ">entropy<"):
        assert text in drawn
    assert ">kl<" not in drawn
