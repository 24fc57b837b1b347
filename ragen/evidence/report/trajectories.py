"""Training rollouts in the format of the page: text, boards, rewards, results of filter and update, tokens.

turns, turn_images, rewards, selection, samples of one iteration -> Batch
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from starpo.ragen.agents.prompting.transcript import Transcriber
from starpo.ragen.agents.vision.image_table import mark_images
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.evidence.reading import Place, Reader
from starpo.ragen.evidence.report.boards import replay_frames
from starpo.ragen.evidence.report.embedding import Batch, shortened
from starpo.ragen.evidence.report.failures import kinds_of
from starpo.ragen.evidence.report.images import shown_images
from starpo.ragen.evidence.report.tokens import TokenLengths, utf16_units
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


def read_rollout(
    reader: Reader,
    places: Sequence[Place],
    settings: EnvironmentSettings | None,
    token_lengths: TokenLengths | None,
    transcriber: Transcriber | None,
) -> Batch | None:
    """Read all trajectories of an iteration, by group, those ranked best by the filter first.

    Args:
        reader: Reader of the store; anything missing other than the turns leaves gaps, not an empty page.
        places: Places of the iteration's artifacts.
        settings: From `read_settings`; None if the environment is unknown here, so that nothing is drawn.
        token_lengths: None if token boundaries cannot be determined.
        transcriber: None if prompts cannot be decoded.

    Returns:
        The batch; None if there are no turns to read.
    """
    by_kind: dict[str, list[Place]] = {}
    for place in places:
        by_kind.setdefault(place.kind, []).append(place)
    tables = [reader.table(place, _TURN_COLUMNS) for place in by_kind.get("turns", ())]
    played = [row for table in tables if table is not None for row in table.to_pylist()]
    if all(table is None for table in tables):
        return None
    images = shown_images(reader, by_kind.get("turn_images", ()))
    for row in played:
        shown = images.get((row["trajectory_id"], row["turn"]), [])
        row["images"] = [one["image"] for one in shown]
        row["prompt_ids"] = mark_images(row["prompt_ids"], [(one["position"], one["num_tokens"]) for one in shown])
    rewards = {(row["trajectory_id"], row["turn"]): row for row in _rows(reader, by_kind.get("rewards"))}
    samples = {row["trajectory_id"]: row for row in _rows(reader, by_kind.get("samples"))}
    members: dict[str, list[Row]] = {}
    by_trajectory: dict[str, list[Row]] = {}  # rows may be in any order
    for row in played:
        by_trajectory.setdefault(row["trajectory_id"], []).append(row)
    for rows in by_trajectory.values():
        turns = sorted(rows, key=lambda row: row["turn"])
        trajectory = _trajectory(settings, turns, rewards, token_lengths, transcriber)
        trajectory["sample"] = _sample(samples.get(trajectory["id"]))
        members.setdefault(turns[0]["group_id"], []).append(trajectory)
    selection = sorted(_rows(reader, by_kind.get("selection")), key=lambda row: (not row["kept"], row["rank"]))
    decided: dict[str, Row] = {
        row["group_id"]: {
            "kept": row["kept"],
            "score": row["score"],
            "success": row["success_rate"],
            "reason": row["reason"],
        }
        for row in selection
        if row["group_id"] in members
    }
    unread = "the filter's decisions cannot be read" if by_kind.get("selection") else ""
    undecided = {"kept": None, "score": None, "success": None, "reason": unread}
    groups = [
        {"id": group_id, **decided.get(group_id, undecided), "members": members[group_id]}
        for group_id in dict.fromkeys([*decided, *members])
    ]
    return Batch(places[0].iteration, None, groups)


def _trajectory(
    settings: EnvironmentSettings | None,
    rows: list[Row],
    rewards: Mapping[tuple[str, int], Row],
    token_lengths: TokenLengths | None,
    transcriber: Transcriber | None,
) -> Row:
    prompts = _prompts(rows, transcriber)
    imported = imported_facts(rows[-1])
    absent = imported.get("absent", ())
    frames = replay_frames(settings, rows) if settings is not None and not imported else None
    paid = [rewards.get((row["trajectory_id"], row["turn"])) for row in rows]
    return {
        "id": rows[0]["trajectory_id"],
        "member": rows[0]["member"],
        "env": rows[0]["env"],
        "seed": str(rows[0]["env_seed"]),  # too large for a JavaScript number
        "return": paid[0]["trajectory_return"] if paid[0] else None,
        "valid": paid[0]["is_valid"] if paid[0] else True,
        "success": None if "success" in absent else any(row["success"] for row in rows),
        "status": max((row["status"] for row in rows), key=STATUSES.index),
        "errors": None if FORMAT in absent else sum(row["status"] == "format_error" for row in rows),
        "drawn": frames is not None,
        "greedy": rows[0]["origin"] == "greedy",
        "kinds": kinds_of(rows),
        "turns": [
            {**_turn(row, reward, frames[number] if frames else [], token_lengths), "prompt": prompts[number]}
            for number, (row, reward) in enumerate(zip(rows, paid, strict=True))
        ],
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
    return {"ids": ids, "lengths": lengths, "surprisals": surprisals}


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
    found = {name: row[column] for column, name in _SAMPLE_COLUMNS.items()}
    return {name: None if value is None else float(f"{value:.4g}") for name, value in found.items()}


def _rows(reader: Reader, places: Sequence[Place] | None) -> list[Row]:
    """Read the rows of all datasets of one kind in an iteration: with several attempts it has several."""
    tables = [reader.table(place) for place in places or ()]
    return [row for table in tables if table is not None for row in table.to_pylist()]
