"""Preference pairs for DPO: better and worse members of a group, which answered the same prompt.

    a group --by return--> best with worst, second best with second worst, ... -> {prompt, chosen, rejected}

Pairs are in TRL's conversational format: three lists of messages. They compare either the first response only, or
everything after the first prompt, which requires a single context for the whole trajectory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted
from starpo.ragen.evidence.exchange.choosing import are_equal
from starpo.ragen.evidence.exchange.played import Part, Played

Extent = Literal["first", "all"]


@dataclass(frozen=True)
class Candidate:
    """A member of a group: its first prompt, the messages that follow, and its return."""

    trajectory_id: str
    member: int
    prompt: list[Part]
    answer: list[Part]
    trajectory_return: float
    facts: Mapping[str, Any]


def candidate(played: Played, extent: Extent) -> Candidate | None:
    """Convert a trajectory to one side of a pair; None without a return or response, after an error, or if greedy.

    Raises:
        ConfigError: If `extent` is 'all' and the trajectory has several contexts.
    """
    contexts = played.contexts()
    if played.trajectory_return is None or not played.is_valid or played.is_greedy or not contexts:
        return None
    if extent == "all" and len(contexts) > 1:
        raise ConfigError(
            f"trajectory {quoted(played.rows[0]['trajectory_id'])} was seen in {len(contexts)} contexts, so it is not "
            "one conversation: compare first turns (--pair first)"
        )
    parts = contexts[0].parts
    end = len(played.told[contexts[0].first_turn])
    row = played.rows[0]
    return Candidate(
        row["trajectory_id"],
        row["member"],
        parts[:end],
        parts[end : end + 1] if extent == "first" else parts[end:],
        played.trajectory_return,
        {name: row[name] for name in ("group_id", "env", "env_seed")} | {"iteration": played.iteration},
    )


def pairs(group: Sequence[Candidate]) -> Iterator[dict[str, Any]]:
    """Yield the pairs of a group, in order, except those with equal returns, equal answers or different prompts."""
    ordered = sorted(group, key=lambda one: (-one.trajectory_return, one.member))
    for better, worse in zip(ordered[: len(ordered) // 2], reversed(ordered), strict=False):
        is_same = better.answer == worse.answer or better.prompt != worse.prompt
        if is_same or are_equal(better.trajectory_return, worse.trajectory_return):
            continue
        yield {
            "prompt": _messages(better.prompt),
            "chosen": _messages(better.answer),
            "rejected": _messages(worse.answer),
            "chosen_return": better.trajectory_return,
            "rejected_return": worse.trajectory_return,
            "chosen_id": better.trajectory_id,
            "rejected_id": worse.trajectory_id,
            **better.facts,
        }


def _messages(parts: Sequence[Part]) -> list[dict[str, str]]:
    return [{"role": part.role, "content": part.text} for part in parts]
