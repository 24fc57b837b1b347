"""Stored gradients of groups: collected by iteration and bucket."""

from starpo.ragen.evidence.diagnostics.gradients import measured


def test_metrics_are_collected_by_iteration_and_bucket() -> None:
    names = {"bucket_3/num_groups": 2.0, "bucket_1/task_norm": 0.5, "bucket_3/task_snr": 0.25}
    series = {f"gradients/{name}": {10: value} for name, value in names.items()} | {"rollout/entropy": {0: 1.0}}
    found = measured(series)
    assert found == {10: {1: {"task_norm": 0.5}, 3: {"num_groups": 2.0, "task_snr": 0.25}}}
    assert list(found[10]) == [1, 3]
