"""ATIF, the Agent Trajectory Interchange Format (Harbor RFC 0001), versions 1.0 to 1.8: one JSON file per trajectory.

    Played -> document -> Trace

Data that ATIF has no field for is stored in `extra.ragen`, at the root and in each agent step, so that an export read
back yields bit-identical rows; `digest` verifies this. External documents can be trained on if their steps have prompt
ids, completion ids and log-probs; otherwise, and if they show images, they are imported without tokens: nothing says
which of them stand for an image.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starpo.ragen.agents.vision.image import Image, PlacedImage
from starpo.ragen.evidence.exchange.content import (
    ChatMessage,
    chat_message,
    flag_of,
    name_of,
    number_of,
    response_of,
    text_of,
    tools_of,
)
from starpo.ragen.evidence.exchange.image_parts import ImageParts, image_path
from starpo.ragen.evidence.exchange.messages import content_of
from starpo.ragen.evidence.exchange.played import Played, Row
from starpo.ragen.evidence.exchange.trace import Message, Trace, TraceFault, TraceTurn
from starpo.ragen.store.artifacts.keys import canonical_json
from starpo.ragen.store.artifacts.provenance import versions
from starpo.schemas.datasets import TURNS, UNKNOWN_FINISH

VERSION = "ATIF-v1.8"
_KNOWN = re.compile(r"ATIF-v1\.[0-8]")
_SAME = (
    "group_id",
    "member",
    "env",
    "env_seed",
    "dynamics_seed",
    "sampling_seed",
    "initial_state_digest",
    "action_cost",
)
_ELSEWHERE = ("trajectory_id", "turn", "prompt_ids", "response_ids", "behaviour_logprobs", "response")
_OF_TURN = tuple(name for name in TURNS.schema.names if name not in (*_SAME, *_ELSEWHERE))

Document = dict[str, Any]


def atif_document(played: Played, run: str, policy: str) -> Document:
    """Convert a trajectory to an ATIF document.

    Args:
        played: The trajectory.
        run: Name of its run.
        policy: Model of the policy, according to the settings of the run.

    Returns:
        The document. Images of its messages are files in a folder beside it (`image_path`).
    """
    rows = played.rows
    steps: list[Document] = []
    context: list[int] = []
    num_prompt = num_response = 0
    for turn, row in enumerate(rows):
        for part in played.new_messages(turn):
            steps.append({"step_id": len(steps) + 1, "source": part.role, "message": content_of(part, _image)})
        context = [] if row["is_context_start"] else context
        context = [*context, *row["prompt_ids"]]
        steps.append(_agent_step(row, context, len(steps) + 1, played.places[turn] if played.places else ()))
        num_prompt, num_response = num_prompt + len(context), num_response + len(row["response_ids"])
        context = [*context, *row["response_ids"]]
    about = {name: rows[0][name] for name in _SAME}
    about |= {"run": run, "iteration": played.iteration, "return": played.trajectory_return, "kept": played.is_kept}
    return {
        "schema_version": VERSION,
        "session_id": f"{run}/{played.iteration}/{rows[0]['group_id']}",
        "trajectory_id": rows[0]["trajectory_id"],
        "agent": {"name": "ragen", "version": versions().get("starpo", "unknown"), "model_name": policy},
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": num_prompt,
            "total_completion_tokens": num_response,
            "total_steps": len(steps),
        },
        "extra": {"ragen": {**about, "success": played.success, "digest": rows_digest(rows, played.places)}},
    }


def rows_digest(rows: Sequence[Row], places: Sequence[Sequence[PlacedImage]] = ()) -> str:
    """Return the SHA-256 digest over a trajectory's rows, all columns, and its images, as 64 hexadecimal digits."""
    content: list[Any] = [{name: row[name] for name in TURNS.schema.names} for row in rows]
    if any(places):
        content.append([_placed(shown) for shown in places])
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def read_atif(value: Any, folder: Path | None = None) -> Trace:
    """Read the trajectory of a document.

    Args:
        value: The document.
        folder: Folder of its file, which has those of its images; None if it shows none.

    Raises:
        TraceFault: If it is not a document of a known version, steps are out of order, or fields are inconsistent.
    """
    if not isinstance(value, Mapping):
        raise TraceFault("is no JSON object")
    if not isinstance(value.get("schema_version"), str) or not _KNOWN.fullmatch(value["schema_version"]):
        raise TraceFault(
            f"has the schema_version {str(value.get('schema_version'))[:40]!r}, expected ATIF-v1.0 to {VERSION}"
        )
    steps = value.get("steps")
    if not isinstance(steps, list) or not steps:
        raise TraceFault("has no steps")
    for number, step in enumerate(steps, 1):
        if not isinstance(step, Mapping) or step.get("step_id") != number:
            raise TraceFault(f"step {number} is not numbered so; steps count 1, 2, 3, ...")
    extra, agent = _object(value.get("extra")), _object(value.get("agent"))
    ours = _object(extra.get("ragen"))
    facts = ours or extra
    columns = {name: ours[name] for name in _SAME if name in ours}
    member = facts.get("member")
    return Trace(
        name_of(value.get("trajectory_id") or value.get("session_id")),
        name_of(facts.get("group_id")),
        str(facts.get("env") or agent.get("name") or "atif"),
        _turns(steps, ImageParts(folder)),
        number_of(facts.get("return", facts.get("reward")), "reward"),
        flag_of(facts.get("success")),
        member=member if type(member) is int else None,
        columns=columns,
        digest=name_of(ours.get("digest")),
        tools=tools_of({"tools": agent.get("tool_definitions")}),
    )


def _image(image: Image) -> Document:
    return {"type": "image", "source": {"media_type": "image/png", "path": image_path(image.digest)}}


def _placed(shown: Sequence[PlacedImage]) -> list[list[Any]]:
    return [[one.position, one.num_tokens, one.image.digest] for one in shown]


def _agent_step(row: Row, context: Sequence[int], step_id: int, shown: Sequence[PlacedImage]) -> Document:
    metrics: Document = {}
    if row["response_ids"]:
        metrics = {
            "prompt_tokens": len(context),
            "completion_tokens": len(row["response_ids"]),
            "prompt_token_ids": list(context),
            "completion_token_ids": row["response_ids"],
        }
    if row["behaviour_logprobs"]:
        metrics["logprobs"] = row["behaviour_logprobs"]
    columns = {name: row[name] for name in _OF_TURN}
    if not row["response_ids"]:
        columns["prompt_ids"] = row["prompt_ids"]
    if shown:
        columns["images"] = _placed(shown)
    step = {"step_id": step_id, "source": "agent", "message": row["response"], "extra": {"ragen": columns}}
    return {**step, "metrics": metrics} if metrics else step


def _turns(steps: Sequence[Mapping[str, Any]], images: ImageParts) -> list[TraceTurn]:
    answering = [step for step in steps if step.get("source") == "agent" and not step.get("is_copied_context")]
    are_recorded = all(_tokens(step, "completion_token_ids") or _own_columns(step) for step in answering)
    turns: list[TraceTurn] = []
    messages: list[Message] = []
    chat: list[ChatMessage] = []
    context: list[int] = []
    for step in steps:
        source, number = step.get("source"), step["step_id"]
        if source not in ("system", "user", "agent"):
            raise TraceFault(f"step {number} has the source {str(source)[:40]!r}, expected system, user or agent")
        if source != "agent":
            messages.append((source, text_of(step.get("message"), images)))
            chat.append({"role": source, "content": messages[-1][1]})
            continue
        response, think = response_of(step.get("message"), step.get("reasoning_content"), step.get("tool_calls"))
        chat.append(_assistant_message(step))
        if step.get("is_copied_context"):
            messages.append(("assistant", response))
            continue
        columns = _own_columns(step)
        turn = TraceTurn(messages, response, think, chat=chat)
        if are_recorded:
            turn, context = _recorded(step, turn, context, columns)
        shown = images.take()
        if columns:
            turn = _replaced(turn, columns=columns, images=_own_images(step, images))
        elif shown:
            turn = _replaced(turn, images=shown)
        turns.append(turn)
        observed = _observed(step, images)
        messages = [("tool", text) for text, _ in observed]
        chat = [{"role": "tool", "content": text} | source for text, source in observed]
    if not turns:
        raise TraceFault("has no step of the agent")
    if any(one.num_tokens == 0 for turn in turns for one in turn.images):
        turns = [
            _replaced(turn, prompt_ids=None, response_ids=None, logprobs=None, is_context_start=False) for turn in turns
        ]
    return turns


def _own_images(step: Mapping[str, Any], images: ImageParts) -> list[PlacedImage]:
    """Return the images of the prompt before a step of our own export."""
    places = _object(_object(step.get("extra")).get("ragen")).get("images", [])
    if not isinstance(places, list) or not all(isinstance(place, list) and len(place) == 3 for place in places):
        raise TraceFault(f"step {step['step_id']}: images is not a list of [position, num_tokens, digest]")
    return [PlacedImage(start, num, images.of_file(image_path(str(digest)))) for start, num, digest in places]


def _recorded(
    step: Mapping[str, Any], turn: TraceTurn, context: list[int], columns: Mapping[str, Any]
) -> tuple[TraceTurn, list[int]]:
    """Add the recorded tokens to a turn; return it and the context after it."""
    number = step["step_id"]
    prompt, response = _tokens(step, "prompt_token_ids"), _tokens(step, "completion_token_ids")
    if not response:
        return turn, context
    if not prompt:
        raise TraceFault(f"step {number} has completion_token_ids, and no prompt_token_ids")
    logprobs = _tokens(step, "logprobs")
    starts = bool(columns.get("is_context_start", False)) or not context or prompt[: len(context)] != context
    recorded = _replaced(
        turn,
        prompt_ids=prompt if starts else prompt[len(context) :],
        response_ids=response,
        logprobs=logprobs or None,
        is_context_start=starts,
        finish_reason=UNKNOWN_FINISH,
    )
    return recorded, [*prompt, *response]


def _replaced(turn: TraceTurn, **changes: Any) -> TraceTurn:
    return TraceTurn(**{**vars(turn), **changes})


def _own_columns(step: Mapping[str, Any]) -> dict[str, Any]:
    ours = _object(_object(step.get("extra")).get("ragen"))
    return {name: ours[name] for name in (*_OF_TURN, "prompt_ids") if name in ours}


def _tokens(step: Mapping[str, Any], name: str) -> list[Any]:
    value = _object(step.get("metrics")).get(name)
    if value is not None and not isinstance(value, list):
        raise TraceFault(f"step {step['step_id']}: {name} is not a list")
    return value or []


def _assistant_message(step: Mapping[str, Any]) -> ChatMessage:
    """Return the message of an agent's step, whose calls have names of their own."""
    calls = [
        {"id": call.get("tool_call_id"), "function": {**call, "name": call.get("function_name")}}
        for call in step.get("tool_calls") or ()
        if isinstance(call, Mapping)
    ]
    named = {"content": step.get("message"), "reasoning_content": step.get("reasoning_content")}
    return chat_message({**named, "tool_calls": calls}, "assistant")


def _observed(step: Mapping[str, Any], images: ImageParts) -> list[tuple[str, ChatMessage]]:
    """Return the text of each result, and the id of the call that it answers, if it tells one."""
    results = _object(step.get("observation")).get("results")
    entries = [result for result in results if isinstance(result, Mapping)] if isinstance(results, list) else []
    sources = [result.get("source_call_id") for result in entries]
    return [
        (text_of(result.get("content"), images), {"tool_call_id": source} if isinstance(source, str) else {})
        for result, source in zip(entries, sources, strict=True)
    ]


def _object(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one if the value is something else."""
    return value if isinstance(value, Mapping) else {}
