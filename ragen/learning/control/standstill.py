"""Standstill: iterations from which nothing is learned, why, and what to try.

metrics of an iteration --why_idle--> reason --advice--> remedy
"""

from collections.abc import Mapping

NUM_GROUPS, NUM_KEPT = "filter/num_groups", "filter/num_kept"
NUM_INVALID, NUM_EQUAL = "filter/num_invalid", "filter/num_zero_variance"
FORMAT, LENGTH, SUCCESS = "rollout/format_ok", "rollout/length_share", "rollout/success_rate"
GRADIENT = "update/gradient_norm"

JUDGED = (NUM_KEPT, FORMAT, GRADIENT)
"""Metrics by which an iteration is judged, the most decisive first."""
EXPLAINING = (NUM_GROUPS, NUM_INVALID, NUM_EQUAL, LENGTH, SUCCESS)
"""Further metrics that explain it."""

_MANY = 0.5
"""Share of responses that run to the limit from which their length is named as a cause; and share of well-formed ones
below which their form is."""


def idle_metric(metrics: Mapping[str, float]) -> str | None:
    """Return the metric that shows that an iteration taught the policy nothing of its task; None if it may have.

    No group was kept, so there was no update; no response was well-formed, so no action was taken; or the gradient of
    every step was 0. Metrics that are absent show nothing.
    """
    return next((name for name in JUDGED if metrics.get(name) == 0), None)


def why_idle(metrics: Mapping[str, float]) -> str:
    """Say why an iteration with an `idle_metric` taught nothing, and what to try, in one sentence."""
    return f"nothing is learned: {_reason(metrics)}. {_advice(metrics)}"


def _reason(metrics: Mapping[str, float]) -> str:
    parts = []
    if metrics.get(FORMAT) == 0:
        parts.append("no response is well-formed, so no action is taken")
    if metrics.get(NUM_KEPT) == 0:
        parts.append(f"no group was kept, so there is no update{_why_none_kept(metrics)}")
    elif metrics.get(GRADIENT) == 0:
        parts.append("the gradient of every step is 0")
    return "; ".join(parts)


def _why_none_kept(metrics: Mapping[str, float]) -> str:
    num_groups = metrics.get(NUM_GROUPS)
    if not num_groups:
        return ""
    if metrics.get(NUM_INVALID) == num_groups:
        return " (every trajectory ended in an error)"
    if metrics.get(NUM_EQUAL, 0) + metrics.get(NUM_INVALID, 0) == num_groups:
        return f" (in each of {num_groups:.0f} groups all returns are equal)"
    return ""


def _advice(metrics: Mapping[str, float]) -> str:
    if metrics.get(FORMAT) == 0:
        advice = "fine-tune the policy on demonstrations first (policy.fine_tuning; a tiny policy's warm start)"
        if (cut := metrics.get(LENGTH, 0.0)) >= _MANY:
            advice = f"raise rollout.max_response_tokens, as {cut:.0%} of responses run to the limit, or {advice}"
        return f"Try: {advice}"
    if metrics.get(NUM_GROUPS) and metrics.get(NUM_INVALID) == metrics[NUM_GROUPS]:
        return "`starpo audit` names the errors"
    if metrics.get(SUCCESS) == 1:
        return "Every trajectory succeeds: choose harder initial states"
    if metrics.get(FORMAT, 1.0) < _MANY:
        return (
            f"Try: fine-tune the policy first (policy.fine_tuning), or a lower rollout.temperature, as only "
            f"{metrics[FORMAT]:.0%} of responses are well-formed"
        )
    if metrics.get(NUM_GROUPS) and metrics.get(NUM_EQUAL, 0) + metrics.get(NUM_INVALID, 0) < metrics[NUM_GROUPS]:
        return "Try: a filter that keeps more (filter.keep)"
    if metrics.get(SUCCESS) == 0:
        return (
            "No trajectory succeeds: choose easier initial states, fine-tune the policy first (policy.fine_tuning), or "
            "try larger groups (rollout.group_size); a higher rollout.temperature helps only a policy that repeats "
            "itself"
        )
    return "Try: larger groups (rollout.group_size), a higher rollout.temperature, or easier initial states"
