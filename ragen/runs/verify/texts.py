"""Token ids compared with recorded texts: responses decoded, prompts rebuilt from observations.

    turns, tokenizer -> text_differences
    turns, turn_images, tokenizer -> text_differences, with the images of the prompts drawn again

No policy and no engine takes part. The environment only provides its rules and the grammar of its actions, and where
prompts show images, it executes the recorded actions again and draws its states.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.forms import read_response
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.core.guard import FOREIGN, guarded
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs import make
from starpo.ragen.envs.base import Environment, EnvironmentSettings
from starpo.ragen.runs.verify.actions import Row, trajectories

_COLUMNS = [
    "trajectory_id", "env_seed", "dynamics_seed", "turn", "observation", "is_context_start", "prompt_ids",
    "response_ids", "response", "think", "answer", "parsed_actions", "executed_actions", "action_rewards", "format_ok",
    "finish_reason", "status", "actions_left", "origin",
]  # fmt: skip


def text_differences(
    turns: pa.Table,
    settings: EnvironmentSettings,
    tokenizer: PreTrainedTokenizerBase,
    contexts: ContextBuilder,
    turn_images: pa.Table | None = None,
) -> Iterator[str]:
    """Compare tokens with texts; yield the first difference of each trajectory that has one.

    `response_ids` without their end token must decode to `response`. That text must parse to `think`, `answer`,
    `parsed_actions`, `format_ok`, and to actions that start with `executed_actions`. `prompt_ids` must be the tokens of
    the recorded observations in the agent's prompt format.

    Args:
        turns: Dataset `turns`, rows in any order.
        settings: Settings of the environment.
        tokenizer: Tokenizer of the policy.
        contexts: Context builder for this tokenizer and the agent.
        turn_images: Dataset `turn_images` of these turns, rows in any order; None if prompts show no images.
    """
    environment, shown = make(settings), _shown(turn_images)
    for rows in trajectories(turns, _COLUMNS):
        for row in rows:
            row["images"] = shown.get((row["trajectory_id"], row["turn"]), [])
        difference = _difference(rows, environment, tokenizer, contexts)
        if difference:
            yield f"trajectory {quoted(rows[0]['trajectory_id'])}, {difference}"


@guarded()
def _difference(
    rows: list[Row], environment: Environment[Any], tokenizer: PreTrainedTokenizerBase, contexts: ContextBuilder
) -> str:
    spoken_rows = [row for row in rows if row["finish_reason"] != "none"]
    if not spoken_rows:
        return ""
    try:
        environment.reset(seed=rows[0]["env_seed"], dynamics_seed=rows[0]["dynamics_seed"])
        grammar, context = environment.grammar, contexts.start(environment)
    except FOREIGN as error:  # environments are third-party code
        return f"the environment now fails: {quoted(error)}"
    texts = tokenizer.batch_decode(
        [_spoken(row["response_ids"], contexts.stop_token_ids) for row in spoken_rows],
        skip_special_tokens=False,
        clean_up_tokenization_spaces=False,
    )
    before: Row | None = None
    for row, text in zip(spoken_rows, texts, strict=True):
        try:
            image = _image_after(before, environment, contexts)
        except FOREIGN as error:
            return f"the environment now fails: {quoted(error)}"
        prompt = context.observe(
            row["observation"],
            actions_left=row["actions_left"],
            reward=sum(before["action_rewards"]) if before else None,
            had_invalid_action=before is not None and not before["format_ok"],
            image=image,
        )
        context.respond(row["response_ids"])
        parsed = read_response(text, grammar=grammar, agent=contexts.agent)
        is_stopped = bool(row["response_ids"]) and row["response_ids"][-1] in contexts.stop_token_ids
        expected: Row = {
            "is_context_start": prompt.is_context_start,
            "prompt_ids": prompt.prompt_ids,
            "images": [(place.position, place.num_tokens, place.image.digest) for place in prompt.images],
            "response": text,
            "think": parsed.think,
            "answer": parsed.answer,
            "parsed_actions": list(parsed.actions),
            "executed_actions": list(parsed.known_prefix[: len(row["executed_actions"])]),
            "format_ok": parsed.format_ok and row["finish_reason"] == "stop",
            "finish_reason": "stop" if is_stopped else "length",
        }
        for name, value in expected.items():
            if row[name] != value:
                return f"turn {row['turn']}: {name} is {quoted(row[name])}, its tokens give {quoted(value)}"
        before = row
    return ""


def _shown(turn_images: pa.Table | None) -> dict[tuple[str, int], list[tuple[int, int, str]]]:
    """Return position, number of tokens and digest of the images of each turn, by trajectory and turn."""
    shown: dict[tuple[str, int], list[tuple[int, int, str]]] = {}
    for row in turn_images.sort_by("position").to_pylist() if turn_images is not None else ():
        place = row["position"], row["num_tokens"], row["image"]
        shown.setdefault((row["trajectory_id"], row["turn"]), []).append(place)
    return shown


def _image_after(before: Row | None, environment: Environment[Any], contexts: ContextBuilder) -> Image | None:
    """Execute the actions of the turn before, if there is one, and draw the state; None if prompts show no images."""
    if not contexts.agent.shows_images:
        return None
    if before is not None:
        if before["origin"] == "search":
            environment.reseed(before["dynamics_seed"])
        for action in before["executed_actions"]:
            environment.step(action)
    return contexts.look(environment)


def _spoken(response_ids: list[int], stop_token_ids: tuple[int, ...]) -> list[int]:
    return response_ids[:-1] if response_ids and response_ids[-1] in stop_token_ids else response_ids
