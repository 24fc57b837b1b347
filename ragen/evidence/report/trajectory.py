"""A trajectory in the format of the page: text, boards, prompts, tokens, rewards; played for training or a panel.

rows of turns or episode_turns, their rewards and images -> TrajectorySource.whole, outline -> JSON
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from pydantic import ValidationError

from starpo.ragen.agents.prompting.transcript import Transcriber
from starpo.ragen.agents.vision.image_table import mark_images
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.evidence.report.boards import read_settings, replay_frames
from starpo.ragen.evidence.report.chat import read_chat
from starpo.ragen.evidence.report.credit import decided_at
from starpo.ragen.evidence.report.embedding import shortened
from starpo.ragen.evidence.report.failures import kinds_of
from starpo.ragen.evidence.report.groups import Row
from starpo.ragen.evidence.report.tokens import TokenLengths, trained_numbers, utf16_units
from starpo.ragen.runs.stored_policy import checkpoints_of, find_tokenizer
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunRecord, StageKeys
from starpo.schemas.datasets import STATUSES
from starpo.schemas.imported import FORMAT, imported_facts

TURN_COLUMNS = (
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
)
OUTCOME_COLUMNS = (
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
)
OUTLINE_COLUMNS = (*OUTCOME_COLUMNS, "member", "env", "env_seed", "initial_state_digest", "action_rewards")

ByTurn = Mapping[tuple[str, int], Any]
"""What is known of a turn, by trajectory and turn."""


@dataclass(frozen=True)
class TrajectorySource:
    """What turns rows of a run's datasets into trajectories for a page.

    Attributes:
        settings: From `read_settings`, of the environment; None if it is unknown here, so that nothing is drawn.
        token_lengths: None if token boundaries cannot be determined, as no tokenizer of the policy can be read.
        transcriber: None if prompts cannot be decoded, likewise.
        run: Name of the run.
        config: Its settings as recorded.
    """

    settings: EnvironmentSettings | None
    token_lengths: TokenLengths | None
    transcriber: Transcriber | None
    run: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store, record: RunRecord, iterations: Mapping[int, StageKeys]) -> "TrajectorySource":
        """Return that of a run."""
        tokenizer = find_tokenizer(store, checkpoints_of(store, iterations))
        lengths = TokenLengths(tokenizer.backend_tokenizer) if tokenizer else None
        transcriber = Transcriber(tokenizer, record.config.get("agent", {})) if tokenizer else None
        settings = drawn_settings(record.config.get("environment", {}))
        return cls(settings, lengths, transcriber, record.name, record.config)

    def whole(
        self,
        rows: Sequence[Row],
        rewards: ByTurn,
        images: ByTurn,
        trained: ByTurn | None = None,
        credit: ByTurn | None = None,
    ) -> Row:
        """Return a trajectory with its turns.

        Args:
            rows: Its rows of `turns` or `episode_turns`, in order.
            rewards: Rows of `rewards`.
            images: Rows of `turn_images`, several a turn (`shown_images`).
            trained: Rows of `trained_tokens`.
            credit: True and estimated credit (`credit_of_turns`).
        """
        trained, credit = trained or {}, credit or {}
        rows = [
            {**_with_images(row, images.get(_turn_of(row), [])), "trained": trained.get(_turn_of(row))} for row in rows
        ]
        prompts, chat, imported = _prompts(rows, self.transcriber), read_chat(rows), imported_facts(rows[-1])
        frames = replay_frames(self.settings, rows) if self.settings is not None and not imported else None
        turns = [
            {
                **_turn(row, rewards.get(_turn_of(row)), frames[number] if frames else [], self.token_lengths),
                "prompt": prompts[number],
                "chat": chat[number],
                "credit": credit.get(_turn_of(row)),
            }
            for number, row in enumerate(rows)
        ]
        whole = outline(rows, rewards) | {"drawn": frames is not None, "turns": turns}
        credited = {number: turn["credit"] for number, turn in enumerate(turns) if turn["credit"]}
        return whole | {"decided": decided_at(credited, success=whole["success"])}


def drawn_settings(environment: Mapping[str, Any]) -> EnvironmentSettings | None:
    """Read the settings of an environment from a stored configuration; None if it is unknown here."""
    try:
        return read_settings(environment)
    except (KeyError, StarPOError, ValidationError):
        return None


def outline(rows: Sequence[Row], rewards: ByTurn) -> Row:
    """Return a trajectory without its turns, which are None."""
    ended, absent = outcome(rows), imported_facts(rows[-1]).get("absent", ())
    paid = rewards.get(_turn_of(rows[0]))
    return {
        "id": rows[0]["trajectory_id"],
        "member": rows[0]["member"],
        "env": rows[0]["env"],
        "seed": str(rows[0]["env_seed"]),  # too large for a JavaScript number
        "state": rows[0]["initial_state_digest"],
        "return": paid["trajectory_return"] if paid else None,
        "valid": paid["is_valid"] if paid else True,
        "success": ended["success"],
        "status": max((row["status"] for row in rows), key=STATUSES.index),
        "errors": None if FORMAT in absent else sum(row["status"] == "format_error" for row in rows),
        "greedy": ended["greedy"],
        "kinds": ended["kinds"],
        "drawn": True,
        "decided": None,
        "turns": None,
    }


def outcome(rows: Sequence[Row]) -> Row:
    """Return how a trajectory ended. `success` is None if its source does not say."""
    absent = imported_facts(rows[-1]).get("absent", ())
    return {
        "success": None if "success" in absent else any(row["success"] for row in rows),
        "greedy": rows[0]["origin"] == "greedy",
        "kinds": kinds_of(rows),
    }


def _turn_of(row: Row) -> tuple[str, int]:
    return row["trajectory_id"], row["turn"]


def _with_images(row: Row, shown: Sequence[Row]) -> Row:
    places = [(one["position"], one["num_tokens"]) for one in shown]
    images = [one["image"] for one in shown]
    return row | {"images": images, "prompt_ids": mark_images(row["prompt_ids"], places)}


def _prompts(rows: Sequence[Row], transcriber: Transcriber | None) -> list[Row | None]:
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
