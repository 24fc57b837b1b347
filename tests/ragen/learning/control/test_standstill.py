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


def test_a_run_without_an_update_is_stalled_from_its_first_iteration():
    verdict = diagnose(series(IDLE, IDLE))
    assert verdict.status == "stalled"
    (signal,) = verdict.signals
    assert (signal.iteration, signal.ended, signal.name, signal.severity) == (0, None, "filter/num_kept", "standstill")
    assert verdict.words == f"stalled: since iteration 0, {why_idle(IDLE)}"
    assert verdict.standstill == f"since iteration 0, {why_idle(IDLE)}"
    assert diagnose(series(IDLE)).status == "stalled"


def test_a_single_iteration_that_keeps_nothing_is_no_standstill_but_three_in_a_row_are():
    assert diagnose(series(BUSY, IDLE, IDLE, BUSY)).signals == ()
    (signal,) = diagnose(series(BUSY, IDLE, IDLE, IDLE, BUSY)).signals
    assert (signal.iteration, signal.ended) == (3, 4)  # raised when it is the third, cleared by the next update
    assert diagnose(series(BUSY, IDLE, IDLE, IDLE, BUSY)).status == "healthy"


def test_updates_of_responses_without_form_teach_nothing_of_the_task():
    malformed = {**BUSY, "rollout/format_ok": 0.0}
    assert idle_metric(malformed) == "rollout/format_ok"
    assert diagnose(series(malformed)).status == "stalled"


def test_what_is_not_measured_shows_nothing():
    assert idle_metric({}) is None
    assert diagnose({"filter/num_kept": {0: 1.0}}).status == "healthy"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ["no response is well-formed", "all returns are equal", "max_response_tokens, as 90%", "fine-tune"]),
        ({"rollout/length_share": 0.1}, ["fine-tune the policy on demonstrations first"]),
        ({"rollout/format_ok": 0.9}, ["in each of 4 groups all returns are equal", "rollout.group_size", "easier"]),
        ({"rollout/format_ok": 1.0, "rollout/success_rate": 1.0}, ["Every trajectory succeeds", "harder"]),
        ({"rollout/format_ok": 1.0, "filter/num_zero_variance": 3.0}, ["a filter that keeps more"]),
        (
            {"rollout/format_ok": 1.0, "filter/num_zero_variance": 0.0, "filter/num_invalid": 4.0},
            ["every trajectory ended in an error", "ragen audit"],
        ),
        ({"filter/num_kept": 2.0, "rollout/format_ok": 1.0, "update/gradient_norm": 0.0}, ["every step is 0"]),
    ],
)
def test_the_reason_and_the_remedy_fit(changes, said):
    text = why_idle(IDLE | changes)
    assert text.startswith("nothing is learned: ")
    for part in said:
        assert part in text


def test_longer_responses_are_not_advised_where_they_end_by_themselves():
    assert "max_response_tokens" not in why_idle(IDLE | {"rollout/length_share": 0.1})


def test_it_is_told_at_the_first_iteration_and_does_not_end_the_run():
    alarm = Alarm()
    verdict = alarm.observe(0, IDLE)
    assert (verdict.status, alarm.has_worsened, alarm.healthy) == ("stalled", True, 0)
    config = DiagnosticsConfig(on_collapse="stop", alarm="collapsing")
    assert not is_due(config, verdict)
