"""Evaluated episodes in the format of the page, the same as for training rollouts.

episodes of one cell -> Batch, or Counts; those of the first and the last checkpoint -> PanelDifference
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from starpo.ragen.agents.evaluation.comparison import (
    COUNTED,
    Counts,
    PanelDifference,
    compare_counts,
    counts_by_prompt,
)
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.seeding import dynamics_seed
from starpo.ragen.envs.grammar import ACTION_SEPARATOR
from starpo.ragen.evidence.reading import Place, Reader
from starpo.ragen.evidence.report.boards import EpisodeReplay, read_settings, replay_episode
from starpo.ragen.evidence.report.chat import read_messages
from starpo.ragen.evidence.report.embedding import TrajectoryBatch, shortened
from starpo.ragen.evidence.report.images import shown_images
from starpo.schemas.datasets import ERROR_STATUSES
from starpo.schemas.manifest import Manifest

Row = dict[str, Any]
_OF_BASE = "evaluate_base:"


def read_change(
    reader: Reader, artifacts: Sequence[Place], environment: str, evaluated: Sequence[int]
) -> PanelDifference | None:
    """Compare the last evaluation of a run with its first.

    Args:
        reader: Reader of the store.
        artifacts: Places of the run's artifacts.
        environment: Name of the panel.
        evaluated: Iterations with an evaluation on it, ascending.

    Returns:
        None if there are not two, or the episodes of one cannot be read.
    """
    if len(evaluated) < 2:
        return None
    first, last = (read_counts(reader, artifacts, environment, evaluated[end]) for end in (0, -1))
    return None if first is None or last is None else compare_counts(last, first)


def read_counts(reader: Reader, artifacts: Sequence[Place], environment: str, iteration: int) -> Counts | None:
    """Count the successes of an evaluation by initial state, without those from which training had started.

    Args:
        reader: Reader of the store.
        artifacts: Places of the run's artifacts.
        environment: Name of the panel.
        iteration: Iteration of the evaluation.

    Returns:
        None if its episodes cannot be read.
    """
    stage = f"evaluate:{environment}"
    place = next((at for at in artifacts if (at.iteration, at.kind, at.stage) == (iteration, "episodes", stage)), None)

    def count() -> Counts | None:
        table = reader.table(place, COUNTED)
        return None if table is None else counts_by_prompt(table)[0]

    return reader.kept(("counts", place), count)


def read_evaluation(reader: Reader, place: Place, manifest: Manifest) -> TrajectoryBatch | None:
    """Read all episodes of one cell at one iteration, in panel order, as one group.

    Args:
        reader: Reader of the store.
        place: Place of an artifact of kind `episodes`.
        manifest: Its manifest, which has the settings of the environment.

    Returns:
        The batch; None if the artifact cannot be read.
    """
    table = reader.table(place)
    if table is None:
        return None
    environment = manifest.settings.get("environment", {})
    is_chat = environment.get("type") == "program"
    try:
        read_settings(environment)
    except (StarPOError, ValidationError, KeyError):
        environment = None
    rows = table.to_pylist()
    names = episode_names(*([row[column] for row in rows] for column in ("env_seed", "member")))
    members = [
        _episode(row, number, name, environment, is_chat)
        for number, (row, name) in enumerate(zip(rows, names, strict=True))
    ]
    images = shown_images(reader, [replace(place, kind="turn_images")] if "images" in manifest.settings else [])
    for member in members:
        for number, turn in enumerate(member["turns"]):
            turn["images"] = [one["image"] for one in images.get((member["id"], number), ())]
    cell = cell_of(place)
    group = {"id": cell, "kept": None, "score": None, "success": _mean(m["success"] for m in members if m["valid"])}
    return TrajectoryBatch(place.iteration, cell, [{**group, "reason": "", "members": members}], len(members))


def cell_of(place: Place) -> str:
    """Return what pages call the evaluation that stored these episodes."""
    cell = place.stage.removeprefix("evaluate:")
    # Both ends of a replay are evaluated at one iteration.
    return f"{cell.removeprefix(_OF_BASE)} of the base run" if cell.startswith(_OF_BASE) else cell


def episode_names(seeds: Sequence[int], members: Sequence[int]) -> list[str]:
    """Return what pages call the episodes of an evaluation: the prompt's number in the panel, and the sample's.

    Args:
        seeds: Environment seed of each, in the order of the dataset.
        members: Number of each among the samples from its prompt.
    """
    prompts = {seed: number for number, seed in enumerate(dict.fromkeys(seeds))}
    return [f"p{prompts[seed]:04d}-{member}" for seed, member in zip(seeds, members, strict=True)]


def _episode(row: Row, number: int, name: str, environment: dict[str, Any] | None, is_chat: bool) -> Row:
    actions = [text.split(f" {ACTION_SEPARATOR} ") if text else [] for text in row["actions"]]
    replay = None
    if environment is not None:
        replay = replay_episode(
            environment,
            seed=row["env_seed"],
            dynamics_seed=dynamics_seed(row["env_seed"], row["member"]),
            initial_state_digest=row["initial_state_digest"],
            observations=row["observations"],
            actions=actions,
            episode_return=row["episode_return"],
        )
    return {
        "id": name,
        "member": number,
        "env": row["env"],
        "seed": str(row["env_seed"]),
        "state": row["initial_state_digest"],
        "return": row["episode_return"],
        "valid": row["status"] not in ERROR_STATUSES,
        "success": row["success"],
        "status": row["status"],
        "errors": row["num_format_errors"],
        "drawn": replay is not None,
        "sample": None,
        "turns": [
            _turn(observation, response, executed, replay, turn) | {"chat": _chat(observation) if is_chat else None}
            for turn, (observation, response, executed) in enumerate(
                zip(row["observations"], row["responses"], actions, strict=True)
            )
        ],
    }


def _chat(observation: str) -> Row:
    return {"conversation": None, "messages": read_messages(observation), "remarks": []}


def _turn(observation: str, response: str, executed: list[str], replay: EpisodeReplay | None, turn: int) -> Row:
    texts = {"observation": shortened(observation), "response": shortened(response)}
    rewards = replay.rewards[turn] if replay else []
    return {
        **{name: text for name, (text, _) in texts.items()},
        "cut": {name: num_cut for name, (_, num_cut) in texts.items() if num_cut},
        "think": None,
        "answer": None,
        "prompt": None,
        "ids": [],
        "lengths": None,
        "surprisals": [],
        "named": executed,
        "executed": executed,
        "rewards": rewards,
        "components": {},
        "total": sum(rewards) if replay else None,
        "status": None,
        "finish": None,
        "forfeited": 0,
        "left": None,
        "frames": replay.frames[turn] if replay else [],
    }


def _mean(values: Iterable[bool]) -> float | None:
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers) if numbers else None
