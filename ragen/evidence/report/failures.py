"""What goes wrong in a rollout: the kinds of failure among its trajectories, with counts and examples.

rows of a trajectory -> kinds_of; trajectories of a rollout -> Failures -> the first paragraph of the report
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_ENDS = ("lost", "limit")
"""Kinds that say how a trajectory ended and not why; they are listed last."""

KINDS = {
    "env_error": "ended in an error of the environment",
    "refused": "after a request that the endpoint refused (the reason stands with its last turn)",
    "timeout": "stopped by the deadline",
    "length": "with a response cut off at rollout.max_response_tokens",
    "malformed": "with a response that lacks the form asked for",
    "unknown": "with a response in that form, but without a valid action or with too many",
    "context": "with a full context (rollout.max_context_tokens)",
    "idle": "with more than half of the actions changing nothing",
    "lost": "ended by the environment, without success",
    "limit": "out of turns or actions",
}
"""Kind of failure -> its description, the most basic first; a trajectory may be of several kinds."""


@dataclass(frozen=True)
class Kind:
    """A kind of failure.

    Attributes:
        words: Its description.
        count: Number of failed trajectories that did.
        example: Id of one of them.
        beside: Id of a successful member of its group; None if there is none.
    """

    words: str
    count: int
    example: str
    beside: str | None


@dataclass(frozen=True)
class Failures:
    """Failures of one rollout.

    Attributes:
        iteration: Its iteration.
        num_trajectories: Number of trajectories whose outcome is recorded; greedy ones are not counted.
        num_failed: Number of those without success.
        kinds: Their kinds, the most frequent first; then how they ended.
    """

    iteration: int
    num_trajectories: int
    num_failed: int
    kinds: list[Kind]


def kinds_of(turns: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the kinds of failure of a trajectory without success, from its rows of `turns` in order."""
    statuses = {row["status"] for row in turns}
    cut = [row for row in turns if row["finish_reason"] == "length"]
    bad = [row for row in turns if row["status"] == "format_error" and row["finish_reason"] != "length"]
    effective = [is_effective for row in turns for is_effective in row["action_effective"]]
    last = turns[-1]
    flags = {
        "env_error": "env_error" in statuses,
        "refused": bool(json.loads(last["info"]).get("refusals")),
        "timeout": "timeout" in statuses,
        "length": bool(cut),
        "malformed": any(row["answer"] is None for row in bad),
        "unknown": any(row["answer"] is not None for row in bad),
        "context": "truncated" in statuses,
        "idle": 2 * sum(effective) < len(effective),
        "lost": bool(last["terminated"]),
        "limit": bool(last["truncated"]) and last["status"] in ("ok", "format_error"),
    }
    return [kind for kind in KINDS if flags[kind]]


def failures_of(iteration: int, groups: Iterable[Mapping[str, Any]]) -> Failures:
    """Count the kinds of failure.

    Args:
        iteration: Iteration of the rollout.
        groups: Its groups in the format of the page (`ragen.evidence.report.rollouts`).
    """
    num_trajectories = num_failed = 0
    counts: dict[str, int] = {}
    examples: dict[str, tuple[str, str | None]] = {}
    for group in groups:
        members = [member for member in group["members"] if member["success"] is not None and not member["greedy"]]
        best = next((member["id"] for member in members if member["success"]), None)
        num_trajectories += len(members)
        for member in (member for member in members if not member["success"]):
            num_failed += 1
            for kind in member["kinds"]:
                counts[kind] = counts.get(kind, 0) + 1
                if kind not in examples or (best is not None and examples[kind][1] is None):
                    examples[kind] = member["id"], best
    ranked = sorted(counts, key=lambda kind: (kind in _ENDS, -counts[kind], list(KINDS).index(kind)))
    kinds = [Kind(KINDS[kind], counts[kind], *examples[kind]) for kind in ranked]
    return Failures(iteration, num_trajectories, num_failed, kinds)
