"""Evaluated episodes in the format of the page, the same as for training rollouts.

episode_turns of one cell, else episodes -> TrajectoryBatch
episodes -> Counts; those of the first and the last checkpoint -> PanelDifference
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from starpo.ragen.agents.evaluation.comparison import (
    COUNTED,
    Counts,
    PanelDifference,
    compare_counts,
    counts_by_prompt,
)
from starpo.ragen.envs.grammar import ACTION_SEPARATOR
from starpo.ragen.evidence.reading import Place, Reader
from starpo.ragen.evidence.report.chat import read_messages
from starpo.ragen.evidence.report.embedding import TrajectoryBatch, shortened
from starpo.ragen.evidence.report.groups import Groups, OneGroup, Row
from starpo.ragen.evidence.report.images import shown_images
from starpo.ragen.evidence.report.trajectory import (
    OUTLINE_COLUMNS,
    TURN_COLUMNS,
    ByTurn,
    TrajectorySource,
    drawn_settings,
    outline,
)
from starpo.schemas.datasets import ERROR_STATUSES
from starpo.schemas.manifest import Manifest

_OF_BASE = "evaluate_base:"
_ABSENT = "(dataset episode_turns): only their texts and actions can be shown."
_NO_TOKENIZER = (
    "Prompts are left out, and tokens stand apart from the text: no checkpoint with the tokenizer is in the store."
)


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


def read_evaluation(
    reader: Reader,
    place: Place,
    manifest: Manifest,
    of_iteration: Sequence[Place],
    source: TrajectorySource,
    only: OneGroup | None = None,
) -> TrajectoryBatch | None:
    """Read all episodes of one cell at one iteration, in panel order, as one group.

    Args:
        reader: Reader of the store.
        place: Place of an artifact of kind `episodes`.
        manifest: Its manifest, which has the settings of the environment.
        of_iteration: Places of the iteration's artifacts.
        source: Makes trajectories of their rows, once it has these settings.
        only: A prompt of the panel; episodes from the others are without their turns, which are None. None: all have
            them.

    Returns:
        The batch; None if neither the episodes' turns nor the episodes can be read. What is not stored of them is said
        in the group's `reason`.
    """
    environment = manifest.settings.get("environment", {})
    of_stage = [one for one in of_iteration if one.stage == place.stage]
    turns = Groups.read(reader, of_stage, "episode_turns", TURN_COLUMNS)
    if turns is not None:
        images = shown_images(reader, [one for one in of_stage if one.kind == "turn_images"])
        source = replace(source, settings=drawn_settings(environment))
        members = _from_turns(turns, images, source, only)
        lacks = "" if source.transcriber else _NO_TOKENIZER
    else:
        episodes = reader.table(place)
        if episodes is None:
            return None
        members = _from_texts(episodes.to_pylist(), is_chat=environment.get("type") == "program")
        is_stored = any(one.kind == "episode_turns" for one in of_stage)
        lacks = f"The turns of these episodes {'cannot be read' if is_stored else 'are not stored'} {_ABSENT}"
    cell = cell_of(place)
    success = _mean(member["success"] for member in members if member["valid"])
    group = {"id": cell, "kept": None, "score": None, "success": success, "reason": lacks, "members": members}
    return TrajectoryBatch(place.iteration, cell, [group], len(members))


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


def _from_turns(turns: Groups, images: ByTurn, source: TrajectorySource, only: OneGroup | None) -> list[Row]:
    """Return episodes from their turns; a group is what was sampled from a prompt."""
    outlines = turns.select(OUTLINE_COLUMNS)
    whole = set(turns.names if only is None else [turns.named(only) or turns.names[0]])
    members = []
    for group in turns.names:
        if group in whole:
            members += [source.whole(rows, _paid(rows), images) for rows in turns.trajectories(group)]
        else:
            members += [outline(rows, _paid(rows)) for rows in outlines.trajectories(group)]
    return [member | {"sample": None} for member in members]


def _paid(rows: Sequence[Row]) -> dict[tuple[str, int], Row]:
    """Return what the environment paid, in the columns of `rewards`: an evaluation has no other reward."""
    common = {
        "trajectory_return": sum(sum(row["action_rewards"]) for row in rows),
        "is_valid": all(row["status"] not in ERROR_STATUSES for row in rows),
        "component_names": (),
        "component_values": (),
    }
    return {(row["trajectory_id"], row["turn"]): common | {"total": sum(row["action_rewards"])} for row in rows}


def _from_texts(episodes: Sequence[Row], *, is_chat: bool) -> list[Row]:
    """Return episodes without their turns' rows: their texts and actions."""
    names = episode_names(*([row[column] for row in episodes] for column in ("env_seed", "member")))
    return [
        {
            "id": name,
            "member": row["member"],
            "env": row["env"],
            "seed": str(row["env_seed"]),
            "state": row["initial_state_digest"],
            "return": row["episode_return"],
            "valid": row["status"] not in ERROR_STATUSES,
            "success": row["success"],
            "status": row["status"],
            "errors": row["num_format_errors"],
            "drawn": False,
            "sample": None,
            "turns": [
                _text_turn(*texts, is_chat=is_chat)
                for texts in zip(row["observations"], row["responses"], row["actions"], strict=True)
            ],
        }
        for row, name in zip(episodes, names, strict=True)
    ]


def _text_turn(observation: str, response: str, actions: str, *, is_chat: bool) -> Row:
    texts = {"observation": shortened(observation), "response": shortened(response)}
    executed = actions.split(f" {ACTION_SEPARATOR} ") if actions else []
    return {
        **{name: text for name, (text, _) in texts.items()},
        "cut": {name: num_cut for name, (_, num_cut) in texts.items() if num_cut},
        "think": None,
        "answer": None,
        "prompt": None,
        "chat": {"conversation": None, "messages": read_messages(observation), "remarks": []} if is_chat else None,
        "ids": [],
        "lengths": None,
        "surprisals": [],
        "named": executed,
        "executed": executed,
        "rewards": [],
        "components": {},
        "total": None,
        "status": None,
        "finish": None,
        "forfeited": 0,
        "left": None,
        "images": [],
        "frames": [],
    }


def _mean(values: Iterable[bool]) -> float | None:
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers) if numbers else None
