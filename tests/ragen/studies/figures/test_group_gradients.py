"""Gradient norms by the standard deviation of a group's returns."""

import pytest

from starpo.ragen.studies.figures.correlations import gradient_tables, gradient_verdicts


def run(scale: float) -> dict[str, dict[int, float]]:
    """Two probes with six buckets: the norm of the task term grows with the std, that of the KL term does not."""
    of_bucket = {"reward_std": lambda k: 0.1 * k, "task_norm": lambda k: scale * k, "kl_norm": lambda _: 0.5}
    return {
        f"gradients/bucket_{k}/{name}": {0: value(k), 10: value(k)}
        for k in range(1, 7)
        for name, value in of_bucket.items()
    }


@pytest.fixture
def result(study):
    return study("gradients", {"none": {0: run(1.0), 1: run(3.0)}, "top 25%": {0: run(2.0), 1: run(2.0)}})


def test_the_tasks_gradient_grows_with_the_std(result) -> None:
    (verdict,) = gradient_verdicts(result).values()
    assert verdict.startswith("shows (rank correlation +0.")


def test_a_row_a_cell_and_sixth_with_means_over_probes_and_seeds(result) -> None:
    ((_, rows, _),) = gradient_tables(result)
    assert len(rows) == 2 * 6
    assert rows[2] == {
        "cell": "none", "sixth": "3", "reward std": "0.3", "task": "6", "KL": "0.5", "entropy bonus": "",
        "signal to noise of the task": "",
    }  # task: (1 * 3 + 3 * 3) / 2  # fmt: skip


def test_without_probes_nothing_is_measured(study) -> None:
    nothing = study("gradients", {"a": {}, "b": {0: {}}})
    assert list(gradient_verdicts(nothing).values()) == ["not measured"]
