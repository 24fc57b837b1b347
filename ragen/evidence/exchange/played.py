"""Stored trajectories of a run, read for export one by one, with rewards and the messages of their prompts.

    turns, rewards, selection of an iteration -> Played -> lines of an export;   episode_turns of an evaluation likewise

Iterations are read one at a time, and their trajectories converted to Python objects a few at a time. Contents of
prompts are decoded from the stored tokens; without tokens or a tokenizer, the observation of the row is used.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.agents.prompting.transcript import Transcriber
from starpo.ragen.agents.vision.image import Image, PlacedImage
from starpo.ragen.agents.vision.image_table import mark_images
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted
from starpo.ragen.runs.stored_images import read_places
from starpo.ragen.runs.stored_policy import checkpoints_of, find_tokenizer
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import attempts, read_attempts
from starpo.ragen.store.records.runs import StageKeys
from starpo.schemas.datasets import ERROR_STATUSES
from starpo.schemas.imported import imported_facts
from starpo.schemas.texts import is_text, messages_of

Row = Mapping[str, Any]

_ROWS_AT_ONCE = 2_000
_EPISODE = ("env", "env_seed", "initial_state_digest", "member")
"""Columns by which turns find their episode on a panel."""


@dataclass(frozen=True)
class ExportedMessage:
    """A message of a context.

    Attributes:
        role: 'system', 'user' or 'assistant'.
        text: Content of the message.
        is_new: Whether the message is in no earlier context of the trajectory.
        images: Images of the message, whose places are marked in the text (`image_tokens.MARK`).
        message: The message as it came, with tool calls and reasoning apart, where its tokens are not known; else None.
    """

    role: str
    text: str
    is_new: bool = True
    images: tuple[Image, ...] = ()
    message: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ExportedContext:
    """Messages that the model saw as one context, including its responses, and the tools that it could call."""

    first_turn: int
    last_turn: int
    parts: list[ExportedMessage]
    tools: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Played:
    """A stored trajectory.

    Attributes:
        iteration: Iteration that first recorded the rollout.
        rows: Rows of `turns`, in order.
        rewards: Rows of `rewards`, aligned with `rows`; None without rewards.
        is_kept: Whether the filter kept its group; None without a filter.
        messages: Messages that the prompt of each turn added; at a context start, the whole context.
        opening: Text that the prompt puts before each response, such as `<think>`.
        places: Images of each turn's prompt; empty without any.
        episode_return: Return of an evaluated episode, which has no rewards: the environment's, penalties not included.
    """

    iteration: int
    rows: Sequence[Row]
    rewards: Sequence[Row] | None
    is_kept: bool | None
    messages: Sequence[Sequence[ExportedMessage]]
    opening: str = ""
    places: Sequence[Sequence[PlacedImage]] = ()
    episode_return: float | None = None

    @property
    def trajectory_return(self) -> float | None:
        """Return of the trajectory; None without rewards, unless it is an evaluated episode."""
        return self.rewards[0]["trajectory_return"] if self.rewards else self.episode_return

    @property
    def success(self) -> bool | None:
        """Whether the goal was reached; None if imported from a source that does not record it."""
        return None if "success" in imported_facts(self.rows[-1]).get("absent", ()) else self.rows[-1]["success"]

    @property
    def is_valid(self) -> bool:
        """Whether the trajectory did not end in an error."""
        return all(row["status"] not in ERROR_STATUSES for row in self.rows)

    def facts(self) -> dict[str, Any]:
        """Return the metadata of the trajectory."""
        row, last = self.rows[0], self.rows[-1]
        return {
            "trajectory_id": row["trajectory_id"],
            "group_id": row["group_id"],
            "member": row["member"],
            "env": row["env"],
            "env_seed": row["env_seed"],
            "initial_state_digest": row["initial_state_digest"],
            "iteration": self.iteration,
            "return": self.trajectory_return,
            "success": self.success,
            "kept": self.is_kept,
            "truncated": last["truncated"],
            "status": last["status"],
        }

    def new_messages(self, turn: int) -> list[ExportedMessage]:
        """Return the messages of a turn's prompt after the last response that it repeats."""
        parts = list(self.messages[turn])
        repeated = [number for number, part in enumerate(parts) if part.role == "assistant"]
        return parts[repeated[-1] + 1 :] if repeated else parts

    def contexts(self) -> list[ExportedContext]:
        """Return the contexts that the model saw, in order; turns without a response are skipped."""
        contexts: list[ExportedContext] = []
        for turn, row in enumerate(self.rows):
            if row["finish_reason"] == "none":
                continue
            response, tools = messages_of(row)[1:] if is_text(row) else (None, [])
            reply = ExportedMessage("assistant", self.opening + row["response"], message=response)
            if row["is_context_start"] or not contexts:
                contexts.append(ExportedContext(turn, turn, [*self.messages[turn], reply], tools))
            else:
                context = contexts.pop()
                contexts.append(replace(context, last_turn=turn, parts=[*context.parts, *self.messages[turn], reply]))
        return contexts


@dataclass
class Recorded:
    """Trajectories of a run; each rollout is read once.

    Attributes:
        store: Store that holds the run.
        run: Name of the run.
        iterations: Iterations to read; None for all.
        panel: Read the evaluations on this panel in place of rollouts.
        reused: Iterations skipped by `read` because an earlier one has the same rollout.
    """

    store: Store
    run: str
    iterations: set[int] | None = None
    panel: str | None = None
    reused: list[int] = field(default_factory=list)

    def read(self) -> Iterator[Played]:
        """Yield every trajectory by iteration, in order of first appearance, with its turns in order.

        Raises:
            StoreError: If there is no such run, or an artifact cannot be read.
            ConfigError: If the run has rollouts, but none at the requested iterations.
        """
        record = self.store.runs.get(self.run)
        stored = self.store.runs.iterations(self.run)
        stage = "rollout" if self.panel is None else f"evaluate:{self.panel}"
        played = [iteration for iteration, stages in stored.items() if stage in stages]
        if self.panel is not None and not played:
            panels = {name.partition(":")[2] for stages in stored.values() for name in stages if ":" in name}
            raise ConfigError(
                f"run {self.run} has no evaluation on panel {quoted(self.panel)}; panels: "
                f"{', '.join(sorted(panels)) or 'none'}"
            )
        if self.iterations is not None and played and self.iterations.isdisjoint(played):
            raise ConfigError(
                f"run {self.run} has no {stage} at the iterations asked for; it has {played[0]} to {played[-1]}"
            )
        tokenizer = find_tokenizer(self.store, checkpoints_of(self.store, stored))
        agent = record.config.get("agent", {})
        transcriber = Transcriber(tokenizer, agent) if tokenizer is not None else None
        taken: set[str] = set()
        for iteration, stages in stored.items():
            if stage not in stages or (self.iterations is not None and iteration not in self.iterations):
                continue
            if self.panel is not None:
                yield from _episodes(self.store, iteration, stages[stage], transcriber)
                continue
            if stages["rollout"]["turns"] in taken:
                self.reused.append(iteration)
                continue
            for attempt in attempts(stages):
                taken.add(attempt["rollout"]["turns"])
                yield from _iteration(self.store, iteration, attempt, transcriber)


def _episodes(
    store: Store, iteration: int, keys: Mapping[str, str], transcriber: Transcriber | None
) -> Iterator[Played]:
    turns = _in_order(store.read_table("episode_turns", keys["episode_turns"]))
    episodes = store.read_table("episodes", keys["episodes"], [*_EPISODE, "episode_return"]).to_pylist()
    returns = {tuple(row[name] for name in _EPISODE): row["episode_return"] for row in episodes}
    shown = read_places(store, keys, "episode_turns")
    for played in _trajectories_of(iteration, turns, transcriber, shown):
        yield replace(played, episode_return=returns[tuple(played.rows[0][name] for name in _EPISODE)])


def _iteration(store: Store, iteration: int, stages: StageKeys, transcriber: Transcriber | None) -> Iterator[Played]:
    turns = _in_order(read_attempts(store, "turns", stages["rollout"]))
    shown = read_places(store, stages["rollout"])
    rewards: pa.Table | None = None
    is_kept: dict[str, bool] = {}
    if "reward" in stages:
        rewards = _in_order(store.read_table("rewards", stages["reward"]["rewards"]))
    if "variance_filter" in stages:
        selection = store.read_table("selection", stages["variance_filter"]["selection"], ["group_id", "kept"])
        is_kept = dict(zip(selection["group_id"].to_pylist(), selection["kept"].to_pylist(), strict=True))
    yield from _trajectories_of(iteration, turns, transcriber, shown, rewards, is_kept)


def _trajectories_of(
    iteration: int,
    turns: pa.Table,
    transcriber: Transcriber | None,
    shown: Mapping[tuple[str, int], list[PlacedImage]] = MappingProxyType({}),
    rewards: pa.Table | None = None,
    is_kept: Mapping[str, bool] = MappingProxyType({}),
) -> Iterator[Played]:
    for start, stop in _pieces(turns["turn"].to_pylist()):
        rows = turns.slice(start, stop - start).to_pylist()
        paid = rewards.slice(start, stop - start).to_pylist() if rewards is not None else None
        for first, last in _trajectories(rows):
            trajectory = rows[first:last]
            places = [shown.get((row["trajectory_id"], row["turn"]), []) for row in trajectory] if shown else []
            messages, opening = _messages(trajectory, transcriber, places)
            yield Played(
                iteration,
                trajectory,
                paid[first:last] if paid is not None else None,
                is_kept.get(trajectory[0]["group_id"]),
                messages,
                opening,
                places,
            )


def _messages(
    rows: Sequence[Row], transcriber: Transcriber | None, places: Sequence[Sequence[PlacedImage]]
) -> tuple[list[list[ExportedMessage]], str]:
    """Return the messages that each prompt added, from tokens or else from the rows, and the opening tag."""
    contents, opening = None, ""
    if transcriber is not None and all(row["prompt_ids"] or row["finish_reason"] == "none" for row in rows):
        contents, opening = transcriber.contents(_marked(rows, places)), transcriber.opening_tag
    if contents is None:
        by_turn, opening = [_said_by_row(row) for row in rows], ""
    else:
        by_turn = [[ExportedMessage(*message) for message in messages] for messages in contents]
    if places and (contents is not None or imported_facts(rows[0])):
        by_turn = [
            _with_images(parts, [one.image for one in shown]) for parts, shown in zip(by_turn, places, strict=True)
        ]
    return by_turn, opening


def _marked(rows: Sequence[Row], places: Sequence[Sequence[PlacedImage]]) -> Sequence[Row]:
    if not places:
        return rows
    spans = [[(one.position, one.num_tokens) for one in shown] for shown in places]
    return [
        {**row, "prompt_ids": mark_images(row["prompt_ids"], placed)} for row, placed in zip(rows, spans, strict=True)
    ]


def _with_images(parts: list[ExportedMessage], images: list[Image]) -> list[ExportedMessage]:
    """Give the messages of a prompt their images; a mark in what a model said is text."""
    waiting = iter(images)
    return [
        part if part.role == "assistant" else replace(part, images=tuple(islice(waiting, part.text.count(MARK))))
        for part in parts
    ]


def _said_by_row(row: Row) -> list[ExportedMessage]:
    return [
        ExportedMessage(message["role"], message["content"], message["role"] != "assistant", message=message)
        for message in messages_of(row)[0]
    ]


def _in_order(table: pa.Table) -> pa.Table:
    """Sort rows by trajectory, in order of first appearance, and turn."""
    place = pc.index_in(table["trajectory_id"], value_set=pc.unique(table["trajectory_id"]))
    order = pc.sort_indices(
        pa.table({"place": place, "turn": table["turn"]}), sort_keys=[("place", "ascending"), ("turn", "ascending")]
    )
    return table.take(order)


def _pieces(turn: list[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that are whole trajectories, of about `_ROWS_AT_ONCE` rows each."""
    start = 0
    for row in range(1, len(turn) + 1):
        if row == len(turn) or (turn[row] == 0 and row - start >= _ROWS_AT_ONCE):
            yield start, row
            start = row


def _trajectories(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    starts = [number for number, row in enumerate(rows) if row["turn"] == 0]
    return zip(starts, [*starts[1:], len(rows)], strict=True)
