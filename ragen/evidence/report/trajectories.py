"""Training rollouts in the format of the page: text, boards, rewards, results of filter and update, tokens.

turns, turn_images, rewards, selection, samples, trained_tokens of one iteration -> Batch
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.agents.prompting.transcript import Transcriber
from starpo.ragen.agents.vision.image_table import mark_images
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.evidence.reading import Place, Reader
from starpo.ragen.evidence.report.boards import replay_frames
from starpo.ragen.evidence.report.chat import read_chat
from starpo.ragen.evidence.report.embedding import TrajectoryBatch, shortened
from starpo.ragen.evidence.report.failures import kinds_of
from starpo.ragen.evidence.report.images import shown_images
from starpo.ragen.evidence.report.tokens import TokenLengths, trained_numbers, utf16_units
from starpo.schemas.datasets import STATUSES
from starpo.schemas.imported import FORMAT, imported_facts

_TURN_COLUMNS = [
    "trajectory_id",
    "group_id",
    "env",
    "env_seed",
    "dynamics_seed",
    "origin",
    "member",
    "turn",
    "observation",
    "is_context_start",
    "prompt_ids",
    "response_ids",
    "behaviour_logprobs",
    "response",
    "think",
    "answer",
    "parsed_actions",
    "executed_actions",
    "action_rewards",
    "action_effective",
    "terminated",
    "truncated",
    "forfeited_actions",
    "finish_reason",
    "status",
    "success",
    "actions_left",
    "initial_state_digest",
    "state_digest",
    "info",
]
_OUTCOME_COLUMNS = [
    "trajectory_id",
    "group_id",
    "turn",
    "origin",
    "answer",
    "action_effective",
    "finish_reason",
    "status",
    "success",
    "terminated",
    "truncated",
    "info",
]
_OUTLINE_COLUMNS = [*_OUTCOME_COLUMNS, "member", "env", "env_seed", "initial_state_digest"]
_SAMPLE_COLUMNS = {
    "advantage": "advantage",
    "mean_ratio": "ratio",
    "clip_fraction": "clip",
    "kl_behaviour": "kl",
    "entropy": "entropy",
    "loss_share": "share",
}
"""Column of dataset `samples` -> its name in the page."""

Row = dict[str, Any]


@dataclass(frozen=True)
class OneGroup:
    """The one group of a rollout whose trajectories are read whole: by its name, or that of a trajectory; by neither,
    or where there is none of the name, the first."""

    group: str | None = None
    trajectory: str | None = None


def read_rollout(
    reader: Reader,
    places: Sequence[Place],
    settings: EnvironmentSettings | None,
    token_lengths: TokenLengths | None,
    transcriber: Transcriber | None,
    only: OneGroup | None = None,
) -> TrajectoryBatch | None:
    """Read all trajectories of an iteration, by group, those ranked best by the filter first.

    Args:
        reader: Reader of the store; anything missing other than the turns leaves gaps, not an empty page.
        places: Places of the iteration's artifacts.
        settings: From `read_settings`; None if the environment is unknown here, so that nothing is drawn.
        token_lengths: None if token boundaries cannot be determined.
        transcriber: None if prompts cannot be decoded.
        only: The members of the other groups are without their turns, which are None. None: all have them.

    Returns:
        The batch, whose groups are made as they are asked for; None if there are no turns to read.
    """
    by_kind = _by_kind(places)
    turns = _Groups.read(reader, by_kind.get("turns"), _TURN_COLUMNS)
    if turns is None:
        return None
    images = shown_images(reader, by_kind.get("turn_images", ()))
    rewards, samples, tokens = (
        _Groups.read(reader, by_kind.get(kind)) for kind in ("rewards", "samples", "trained_tokens")
    )
    decided = _decided(reader, by_kind, turns)
    unread = "the filter's decisions cannot be read" if by_kind.get("selection") else ""
    undecided = {"kept": None, "score": None, "success": None, "reason": unread}

    order, outlines = turns.order(decided), turns.select(_OUTLINE_COLUMNS)
    whole = order if only is None else [turns.named(only) or order[0]]

    def members(group: str) -> list[Row]:
        paid = {(row["trajectory_id"], row["turn"]): row for row in rewards.rows(group)} if rewards else {}
        sampled = {row["trajectory_id"]: row for row in samples.rows(group)} if samples else {}
        trained = {(row["trajectory_id"], row["turn"]): row for row in tokens.rows(group)} if tokens else {}
        trajectories = []
        if group not in whole:
            for rows in outlines.trajectories(group):
                outline = _outline(rows, paid) | {"drawn": True, "turns": None}
                trajectories.append(outline | {"sample": _sample(sampled.get(outline["id"]))})
            return trajectories
        for rows in turns.trajectories(group):
            for row in rows:
                shown = images.get((row["trajectory_id"], row["turn"]), [])
                row["images"] = [one["image"] for one in shown]
                row["trained"] = trained.get((row["trajectory_id"], row["turn"]))
                places = [(one["position"], one["num_tokens"]) for one in shown]
                row["prompt_ids"] = mark_images(row["prompt_ids"], places)
            trajectory = _trajectory(settings, rows, paid, token_lengths, transcriber)
            trajectory["sample"] = _sample(sampled.get(trajectory["id"]))
            trajectories.append(trajectory)
        return trajectories

    groups = ({"id": group, **decided.get(group, undecided), "members": members(group)} for group in order)
    return TrajectoryBatch(places[0].iteration, None, groups, turns.num_trajectories)


def read_outcomes(reader: Reader, places: Sequence[Place]) -> Iterator[Row]:
    """Read how all trajectories of an iteration ended, by group, in the order of `read_rollout`.

    Yields:
        Groups in the format of the page, with the members' `id`, `success`, `greedy` and `kinds` alone; none if there
        are no turns to read.
    """
    by_kind = _by_kind(places)
    turns = _Groups.read(reader, by_kind.get("turns"), _OUTCOME_COLUMNS)
    if turns is None:
        return
    for group in turns.order(_decided(reader, by_kind, turns)):
        yield {"members": [{"id": rows[0]["trajectory_id"], **_outcome(rows)} for rows in turns.trajectories(group)]}


def _by_kind(places: Sequence[Place]) -> dict[str, list[Place]]:
    by_kind: dict[str, list[Place]] = {}
    for place in places:
        by_kind.setdefault(place.kind, []).append(place)
    return by_kind


class _Groups:
    """The rows of a dataset by group: columns in Arrow, of which one group at a time becomes Python objects."""

    def __init__(self, tables: Sequence[pa.Table]) -> None:
        self._table = pa.concat_tables(tables).combine_chunks()
        self._rows: dict[str, list[int]] = {}
        for number, group in enumerate(self._table["group_id"].to_pylist()):
            self._rows.setdefault(group, []).append(number)

    @classmethod
    def read(
        cls, reader: Reader, places: Sequence[Place] | None, columns: Sequence[str] | None = None
    ) -> "_Groups | None":
        """Read the datasets of one kind in an iteration, of which it has several with several attempts."""
        tables = [reader.table(place, columns) for place in places or ()]
        readable = [table for table in tables if table is not None]
        return cls(readable) if readable else None

    @property
    def num_trajectories(self) -> int:
        """Number of trajectories."""
        return int(pc.count_distinct(self._table["trajectory_id"]).as_py())

    def select(self, columns: Sequence[str]) -> "_Groups":
        """Return the same rows with these columns alone, beside the group."""
        other = object.__new__(_Groups)
        other._table, other._rows = self._table.select([*columns]), self._rows
        return other

    def named(self, one: OneGroup) -> str | None:
        """Return the name of the group; None if there is none."""
        if one.group in self._rows or one.trajectory is None:
            return one.group if one.group in self._rows else None
        row = pc.index(self._table["trajectory_id"], one.trajectory).as_py()
        return None if row < 0 else str(self._table["group_id"][row])

    def order(self, decided: Mapping[str, Row]) -> list[str]:
        """Return the names of its groups: those that were decided on, in that order, then the others."""
        return list(dict.fromkeys([*(group for group in decided if group in self._rows), *self._rows]))

    def rows(self, group: str) -> list[Row]:
        """Return the rows of a group, in their order; they may lie anywhere in the dataset."""
        numbers = self._rows.get(group, [])
        if not numbers or numbers[-1] - numbers[0] + 1 == len(numbers):
            rows: list[Row] = self._table.slice(numbers[0] if numbers else 0, len(numbers)).to_pylist()
            return rows
        taken: list[Row] = self._table.take(pa.array(numbers)).to_pylist()
        return taken

    def trajectories(self, group: str) -> list[list[Row]]:
        """Return the trajectories of a group, each as its turns in order."""
        by_id: dict[str, list[Row]] = {}
        for row in self.rows(group):
            by_id.setdefault(row["trajectory_id"], []).append(row)
        return [sorted(rows, key=lambda row: row["turn"]) for rows in by_id.values()]


def _decided(reader: Reader, by_kind: Mapping[str, Sequence[Place]], turns: _Groups) -> dict[str, Row]:
    """Return the filter's decisions on the groups, the kept ones first, each by rank."""
    tables = [reader.table(place) for place in by_kind.get("selection", ())]
    selection = [row for table in tables if table is not None for row in table.to_pylist()]
    return {
        row["group_id"]: {
            "kept": row["kept"],
            "score": row["score"],
            "success": row["success_rate"],
            "reason": row["reason"],
        }
        for row in sorted(selection, key=lambda row: (not row["kept"], row["rank"]))
    }


def _trajectory(
    settings: EnvironmentSettings | None,
    rows: list[Row],
    rewards: Mapping[tuple[str, int], Row],
    token_lengths: TokenLengths | None,
    transcriber: Transcriber | None,
) -> Row:
    prompts, chat, imported = _prompts(rows, transcriber), read_chat(rows), imported_facts(rows[-1])
    frames = replay_frames(settings, rows) if settings is not None and not imported else None
    paid = [rewards.get((row["trajectory_id"], row["turn"])) for row in rows]
    turns = [
        {
            **_turn(row, reward, frames[number] if frames else [], token_lengths),
            "prompt": prompts[number],
            "chat": chat[number],
        }
        for number, (row, reward) in enumerate(zip(rows, paid, strict=True))
    ]
    return _outline(rows, rewards) | {"drawn": frames is not None, "turns": turns}


def _outline(rows: list[Row], rewards: Mapping[tuple[str, int], Row]) -> Row:
    """Return a trajectory without its turns."""
    outcome, absent = _outcome(rows), imported_facts(rows[-1]).get("absent", ())
    paid = rewards.get((rows[0]["trajectory_id"], rows[0]["turn"]))
    return {
        "id": rows[0]["trajectory_id"],
        "member": rows[0]["member"],
        "env": rows[0]["env"],
        "seed": str(rows[0]["env_seed"]),  # too large for a JavaScript number
        "state": rows[0]["initial_state_digest"],
        "return": paid["trajectory_return"] if paid else None,
        "valid": paid["is_valid"] if paid else True,
        "success": outcome["success"],
        "status": max((row["status"] for row in rows), key=STATUSES.index),
        "errors": None if FORMAT in absent else sum(row["status"] == "format_error" for row in rows),
        "greedy": outcome["greedy"],
        "kinds": outcome["kinds"],
    }


def _outcome(rows: list[Row]) -> Row:
    """Return how a trajectory ended. `success` is None if its source does not say."""
    absent = imported_facts(rows[-1]).get("absent", ())
    return {
        "success": None if "success" in absent else any(row["success"] for row in rows),
        "greedy": rows[0]["origin"] == "greedy",
        "kinds": kinds_of(rows),
    }


def _prompts(rows: list[Row], transcriber: Transcriber | None) -> list[Row | None]:
    """Return for each turn whether it starts a new context, the size of its context, and the added messages.

    A message has its role, its text, the number of characters cut off, its number of tokens, and its images.
    """
    if transcriber is None:
        return [None] * len(rows)
    prompts: list[Row | None] = []
    size = 0
    for row, added in zip(rows, transcriber.read(rows), strict=True):
        size = (0 if row["is_context_start"] else size) + len(row["prompt_ids"])
        waiting = iter(row["images"])
        messages = [
            [
                message.role,
                *shortened(message.text),
                message.num_tokens,
                [] if message.role == "assistant" else list(islice(waiting, message.text.count(MARK))),
            ]
            for message in added
        ]
        prompts.append({"start": row["is_context_start"], "size": size, "added": messages})
        size += len(row["response_ids"])
    return prompts


def _turn(row: Row, reward: Row | None, frames: list[Any], token_lengths: TokenLengths | None) -> Row:
    texts = {name: shortened(row[name]) for name in ("observation", "response", "think", "answer")}
    components = zip(reward["component_names"], reward["component_values"], strict=True) if reward else ()
    return {
        **{name: text for name, (text, _) in texts.items()},
        "cut": {name: num_cut for name, (_, num_cut) in texts.items() if num_cut},
        **_tokens(row, texts["response"][0] or "", token_lengths),
        "named": [shortened(action)[0] for action in row["parsed_actions"]],
        "executed": row["executed_actions"],
        "rewards": row["action_rewards"],
        "components": {name: value for name, value in components if value},
        "total": reward["total"] if reward else None,
        "status": row["status"],
        "finish": row["finish_reason"],
        "forfeited": row["forfeited_actions"],
        "left": row["actions_left"],
        "images": row["images"],
        "frames": frames,
    }


def _tokens(row: Row, shown: str, token_lengths: TokenLengths | None) -> Row:
    """Return the tokens of the shown text: ids, surprisals in thousandths of a nat, and lengths in UTF-16 units."""
    ids, lengths = row["response_ids"], None
    if token_lengths is not None:
        lengths = token_lengths.measure(ids, row["response"])
    if len(shown) < len(row["response"]):
        ids, lengths = _cut_to(ids, lengths, shown)
    surprisals = [round(-1000 * value) for value in row["behaviour_logprobs"][: len(ids)]]
    trained = trained_numbers(row["trained"], len(ids))
    return {"ids": ids, "lengths": lengths, "surprisals": surprisals, "trained": trained}


def _cut_to(ids: list[int], lengths: list[int] | None, shown: str) -> tuple[list[int], list[int] | None]:
    if lengths is None:
        return ids[: len(shown)], None
    end, place, size = 0, 0, utf16_units(shown)
    while end < len(ids) and place + lengths[end] <= size:
        place += lengths[end]
        end += 1
    return ids[:end], lengths[:end]


def _sample(row: Row | None) -> Row | None:
    if row is None:
        return None
    values = {name: row[column] for column, name in _SAMPLE_COLUMNS.items()}
    return {name: None if value is None else float(f"{value:.4g}") for name, value in values.items()}
