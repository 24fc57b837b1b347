"""Summary of an iteration in one line."""

from unittest.mock import Mock

from starpo.flows.presets import preset
from starpo.ragen.runs.execution import InProcess
from starpo.ragen.runs.placement import ModelPlacement
from starpo.tasks.loop.iteration_summary import iteration_line
from starpo.tasks.loop.record import RunRecorder

METRICS = {
    "rollout/success_rate": 0.3125,
    "reward/return_mean": 1.25,
    "rollout/entropy": 1.1,
    "update/validity_after/kl": 0.00468,
    "filter/num_kept": 2.0,
    "filter/num_groups": 4.0,
}


def test_line_holds_only_measured_values() -> None:
    assert iteration_line(2, 10, METRICS, 1.25) == (
        "iteration 3 of 10: success 0.312, return 1.25, entropy 1.1, KL 0.00468, 2 of 4 groups kept, "
        "1.2 s per iteration"
    )
    assert iteration_line(0, 1, {}, 2.0) == "iteration 1 of 1: 2.0 s per iteration"


def test_current_metrics_differ_from_earlier_ones(tmp_path) -> None:
    """An iteration without an update has no update metrics, so no alarm takes those of an earlier one for its own."""
    recorder = RunRecorder(str(tmp_path), "mine", preset("smoke"), InProcess(ModelPlacement()))
    recorder._tracker = Mock()
    recorder.note(0, {"update/kl_behaviour": 0.5, "rollout/success_rate": 0.1})
    recorder.note(1, {"rollout/success_rate": 0.2})
    assert recorder.measured(1, ["update/kl_behaviour", "rollout/success_rate"]) == {"rollout/success_rate": 0.2}


def test_time_left_ignores_stored_iterations(tmp_path, monkeypatch) -> None:
    """A run that goes on estimates its time from the iterations that it carries out itself."""
    clock = Mock(return_value=0.0)
    monkeypatch.setattr("starpo.tasks.loop.record.time.monotonic", clock)
    config = preset("smoke").model_copy(update={"iterations": 6})
    recorder = RunRecorder(str(tmp_path), "mine", config, InProcess(ModelPlacement()))
    recorder.progress = Mock()
    recorder._last_recorded = 2
    recorder.training_begins()
    lefts = []
    for iteration, ended_at in enumerate([0.1, 0.2, 50.0, 150.0, 270.0]):
        clock.return_value = ended_at
        recorder.iteration_done(iteration)
        lefts.append(recorder.progress.say.call_args.kwargs["seconds_left"])
    assert lefts == [None, None, None, 200.0, 110.0], "the third was stored in part"
