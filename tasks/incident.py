"""turns of a healthy iteration and of the one that raised the alarm -> incident: signals, transcripts, action taken."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from starpo.ragen.learning.control.collapse import RunVerdict
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage

STAGE = Stage(name="incident", version=2)
_NUM_TRANSCRIPTS = 4
_TOLD = ("turn", "observation", "response", "executed_actions", "success", "status")


def incident(iteration: int, healthy: int, verdict: RunVerdict, action: str, turns: Mapping[int, str]) -> Work:
    """Document a collapse.

    Args:
        iteration: Iteration that raised the alarm: updates completed before it.
        healthy: Best iteration before any sign of the collapse.
        verdict: Verdict that triggered the incident.
        action: Action taken, in words.
        turns: Iteration -> key of its turns.
    """
    settings = {
        "iteration": iteration,
        "healthy": healthy,
        "status": verdict.status,
        "signals": [asdict(signal) for signal in verdict.signals],
        "action": action,
    }
    inputs = {"turns": turns[iteration], "before_turns": turns[healthy]}
    return Work(STAGE, ("incident",), partial(_write, settings), settings, inputs)


def _write(facts: Mapping[str, Any], work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
    with store.new_folder() as folder:
        (folder / "incident.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        for name, role in (("before", "before_turns"), ("after", "turns")):
            rows = _transcripts(store, work.inputs[role])
            (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        yield Output("incident", folder)


def _transcripts(store: Store, key: str) -> Sequence[dict[str, Any]]:
    """Return the first few trajectories, one row each."""
    turns = store.read_table("turns", key, columns=["trajectory_id", *_TOLD]).to_pylist()
    trajectories: dict[str, list[dict[str, Any]]] = {}
    for row in turns:
        trajectories.setdefault(row.pop("trajectory_id"), []).append(row)
    chosen = sorted(trajectories)[:_NUM_TRANSCRIPTS]
    return [
        {"trajectory_id": name, "turns": sorted(trajectories[name], key=lambda row: row["turn"])} for name in chosen
    ]
