"""A run that learns nothing says so at its first iteration, why, and what to try."""

import pytest

from starpo.ragen.config.diagnostics import DiagnosticsConfig
from starpo.ragen.learning.control.alarm import Alarm, is_due
from starpo.ragen.learning.control.collapse import diagnose
from starpo.ragen.learning.control.standstill import idle_metric, why_idle

IDLE = {
    "filter/num_groups": 4.0,
    "filter/num_kept": 0.0,
    "filter/num_zero_variance": 4.0,
    "filter/num_invalid": 0.0,
    "rollout/format_ok": 0.0,
    "rollout/length_share": 0.9,
    "rollout/success_rate": 0.0,
}
"""Metrics of a policy that does not know the format and never ends a response."""

BUSY = {**IDLE, "filter/num_kept": 2.0, "rollout/format_ok": 0.9, "update/gradient_norm": 1.0}


def series(*iterations):
    return {name: {i: metrics[name] for i, metrics in enumerate(iterations) if name in metrics} for name in BUSY}


def test_run_without_update_is_stalled():
    verdict = diagnose(series(IDLE, IDLE))
    assert verdict.status == "stalled"
    (signal,) = verdict.signals
    assert (signal.iteration, signal.ended, signal.name, signal.severity) == (0, None, "filter/num_kept", "standstill")
    assert verdict.words == f"stalled: since iteration 0, {why_idle(IDLE)}"
    assert verdict.standstill == f"since iteration 0, {why_idle(IDLE)}"
    assert diagnose(series(IDLE)).status == "stalled"


def test_three_idle_iterations_are_a_standstill():
    assert diagnose(series(BUSY, IDLE, IDLE, BUSY)).signals == ()
    (signal,) = diagnose(series(BUSY, IDLE, IDLE, IDLE, BUSY)).signals
    assert (signal.iteration, signal.ended) == (3, 4)  # raised when it is the third, cleared by the next update
    assert diagnose(series(BUSY, IDLE, IDLE, IDLE, BUSY)).status == "healthy"


def test_malformed_responses_teach_nothing():
    malformed = {**BUSY, "rollout/format_ok": 0.0}
    assert idle_metric(malformed) == "rollout/format_ok"
    assert diagnose(series(malformed)).status == "stalled"


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, ["no response is well-formed", "all returns are equal", "max_response_tokens, as 90%", "fine-tune"]),
        ({"rollout/length_share": 0.1}, ["fine-tune the policy on demonstrations first"]),
        ({"rollout/format_ok": 0.9}, ["in each of 4 groups all returns are equal", "rollout.group_size", "easier"]),
        ({"rollout/format_ok": 0.02}, ["fine-tune", "a lower rollout.temperature, as only 2% of responses"]),
        ({"rollout/format_ok": 0.9}, ["No trajectory succeeds", "helps only a policy that repeats itself"]),
        ({"rollout/format_ok": 0.9, "rollout/success_rate": 0.4}, ["Try: larger groups", "a higher rollout.temp"]),
        ({"rollout/format_ok": 1.0, "rollout/success_rate": 1.0}, ["Every trajectory succeeds", "harder"]),
        ({"rollout/format_ok": 1.0, "filter/num_zero_variance": 3.0}, ["a filter that keeps more"]),
        (
            {"rollout/format_ok": 1.0, "filter/num_zero_variance": 0.0, "filter/num_invalid": 4.0},
            ["every trajectory ended in an error", "starpo audit"],
        ),
        ({"filter/num_kept": 2.0, "rollout/format_ok": 1.0, "update/gradient_norm": 0.0}, ["every step is 0"]),
    ],
)
def test_the_reason_and_the_remedy_fit(changes, parts):
    text = why_idle(IDLE | changes)
    assert text.startswith("nothing is learned: ")
    for part in parts:
        assert part in text


def test_idleness_reported_without_ending_run():
    alarm = Alarm()
    verdict = alarm.observe(0, IDLE)
    assert (verdict.status, alarm.has_worsened, alarm.healthy) == ("stalled", True, 0)
    config = DiagnosticsConfig(on_collapse="stop", alarm="collapsing")
    assert not is_due(config, verdict)
