"""The kinds of failure in a rollout, by hand."""

import pytest

from starpo.ragen.evidence.report.failures import KINDS, Kind, failures_of, kinds_of
from starpo.ragen.evidence.report.words import goes_wrong

OK = {
    "status": "ok",
    "finish_reason": "stop",
    "answer": "Up",
    "action_effective": [True],
    "terminated": False,
    "truncated": False,
    "info": "{}",
}


@pytest.mark.parametrize(
    ("last", "kinds"),
    [
        ({"truncated": True}, ["limit"]),
        ({"terminated": True}, ["lost"]),
        ({"status": "format_error", "answer": None, "action_effective": [], "truncated": True}, ["malformed", "limit"]),
        ({"status": "format_error", "answer": "Fly", "action_effective": []}, ["unknown"]),
        ({"status": "format_error", "finish_reason": "length", "answer": None, "action_effective": []}, ["length"]),
        ({"status": "truncated", "finish_reason": "none", "action_effective": [], "truncated": True}, ["context"]),
        ({"status": "env_error", "action_effective": []}, ["env_error"]),
        ({"status": "timeout", "finish_reason": "none", "action_effective": []}, ["timeout"]),
        ({"truncated": True, "info": '{"refusals": ["n is 2"]}'}, ["refused", "limit"]),
        ({"action_effective": [False, False], "truncated": True}, ["idle", "limit"]),  # 1 of 3 actions had an effect
        ({"action_effective": [False], "truncated": True}, ["limit"]),  # 1 of 2
    ],
)
def test_a_failure_has_its_kinds(last, kinds):
    assert kinds_of([OK, {**OK, **last}]) == kinds


def member(name, success, *kinds, greedy=False):
    return {"id": name, "success": success, "kinds": list(kinds), "greedy": greedy}


def test_failures_are_counted_with_an_example():
    groups = [
        {"members": [member("a-0", False, "malformed", "limit"), member("a-1", False, "lost")]},
        {"members": [member("b-0", True), member("b-1", False, "malformed", "limit")]},
        {"members": [member("c-0", None, "limit"), member("c-1", False, "lost", greedy=True)]},  # neither counts
    ]
    failures = failures_of(7, groups)
    assert (failures.iteration, failures.num_trajectories, failures.num_failed) == (7, 4, 3)
    assert failures.kinds == [  # a cause comes before an end, the more frequent end before the other
        Kind(KINDS["malformed"], 2, "b-1", "b-0"),
        Kind(KINDS["limit"], 2, "b-1", "b-0"),
        Kind(KINDS["lost"], 1, "a-1", None),
    ]
    assert goes_wrong(failures) == (
        "What goes wrong now: 3 of 4 trajectories of the last rollout, of iteration 7, fail, some in several ways:"
    )


def test_rollout_without_failures_says_so():
    failures = failures_of(7, [{"members": [member("a-0", True)]}])
    assert goes_wrong(failures) == "Every trajectory of the last rollout, of iteration 7, succeeds (1)."
    assert goes_wrong(failures_of(7, [])) == goes_wrong(None) == ""
