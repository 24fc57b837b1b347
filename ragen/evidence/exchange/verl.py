"""verl's rollout dumps (`rollout_data_dir/STEP.jsonl`): a prompt, an output and a score per line, import and export.

    Played -> {"input", "output", "gts", "score", "step", ...}          line -> Trace of one response

A line has one prompt and one output: for a trajectory of several turns, the output is everything after the first
prompt, so turns are only distinguishable in the text, and an import has a single turn.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from starpo.ragen.evidence.exchange.content import facts_of, name_of, number_of
from starpo.ragen.evidence.exchange.played import Played
from starpo.ragen.evidence.exchange.trace import Trace, TraceFault, TraceTurn


def verl_line(played: Played) -> dict[str, Any]:
    """Convert a trajectory to a line."""
    told = ["\n".join(part.text for part in played.told_anew(turn)) for turn in range(len(played.rows))]
    said = ["" if row["finish_reason"] == "none" else played.opening + row["response"] for row in played.rows]
    behind = [text for turn in range(1, len(said)) for text in (told[turn], said[turn])]
    return {
        "input": told[0],
        "output": "\n".join(text for text in [said[0], *behind] if text),
        "gts": None,
        "score": played.trajectory_return,
        "step": played.iteration,
        **played.facts(),
    }


def read_verl(value: Any) -> Trace:
    """Read the trajectory of a line; without a `group_id`, lines of the same `input` and `step` form a group.

    Raises:
        TraceFault: If input or output is not text.
    """
    if not isinstance(value, Mapping):
        raise TraceFault("is no JSON object")
    told, said = value.get("input"), value.get("output")
    if not isinstance(told, str) or not isinstance(said, str):
        raise TraceFault("has no texts 'input' and 'output'")
    return Trace(
        name_of(value.get("trajectory_id") or value.get("request_id")),
        name_of(value.get("group_id")) or prompt_group(value.get("step"), told),
        str(value.get("env") or value.get("data_source") or "verl"),
        [TraceTurn([("user", told)], said)],
        number_of(value.get("score"), "score"),
        **facts_of(value),
    )


def prompt_group(step: Any, prompt: str) -> str:
    """Return the id of the group that answered a prompt in a step."""
    return f"prompt-{hashlib.sha256(f'{step}/{prompt}'.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
