"""A trajectory in a terminal, turn by turn: prompts, observation, response, executed actions and what they paid."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from starpo.flows.console.documents.runs import PlayedTurn
from starpo.flows.console.listing import recorded_stages
from starpo.flows.console.table import print_record
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ArtifactMissingError, ConfigError
from starpo.ragen.core.visible import MAX_TEXT, quoted
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import attempts, of_kind, read_attempts, recorded_data
from starpo.schemas.imported import imported_facts

_OUTCOMES = {True: "goal reached", False: "goal not reached", None: "whether the goal was reached is not recorded"}

Row = Mapping[str, Any]
Messages = list[dict[str, Any]]
"""`role`, `text` and `num_tokens` of each message, in the order of the model's context."""


def print_trajectory(
    store: Store, run: str, iteration: int, trajectory: str, *, should_show_prompts: bool, as_json: bool
) -> None:
    """Print a trajectory.

    Args:
        store: Where the run is stored.
        run: The run's name.
        iteration: Iteration of the rollout.
        trajectory: Id of the trajectory.
        should_show_prompts: Also print the prompts; otherwise only their lengths.
        as_json: Print the rows of dataset `turns`, each with its `prompt` as messages and its `reward` by component.

    Raises:
        StoreError: If there is no such run, or no rollout at that iteration.
        ConfigError: If the run has no such iteration, or the rollout no such trajectory.
    """
    if as_json:
        print_json([PlayedTurn(**row) for row in read_trajectory(store, run, iteration, trajectory)])
        return
    rows, data = _rows(store, run, iteration, trajectory)
    rewards = _rewards(store, data, trajectory)
    prompts = _prompts(store, run, rows) if should_show_prompts else None
    console = Console()
    for turn in range(len(rows)):
        _print_turn(console, rows, turn, prompts[turn] if prompts else [], _components(rewards.get(turn)))
    total = f"; return {rewards[0]['trajectory_return']:.4g}" if 0 in rewards else ""
    say(console, f"{_ending(rows[-1])}{total}")
    if any(len(text) > MAX_TEXT for row in rows for text in (row["observation"], row["response"])):
        say(console, "long texts are cut; --json shows them in full, and `starpo sql` parts of them")
    if not should_show_prompts:
        say(console, "--prompts shows the model's prompts")
    elif prompts is None:
        say(console, "prompts cannot be shown as text: no checkpoint with the run's tokenizer is in the store")


def read_trajectory(store: Store, run: str, iteration: int, trajectory: str) -> list[dict[str, Any]]:
    """Return the turns of a trajectory.

    Returns:
        The rows of dataset `turns`, each with the digests of its `images` if it shows any, its `prompt`, the messages
        that it added to the context (None if no checkpoint with the run's tokenizer is stored), and its `reward` by
        component (None if it was not computed).

    Raises:
        StoreError: If there is no such run, or no rollout at that iteration.
        ConfigError: If the run has no such iteration, or the rollout no such trajectory.
    """
    rows, data = _rows(store, run, iteration, trajectory)
    rewards, prompts = _rewards(store, data, trajectory), _prompts(store, run, rows)
    return [
        {**row, "prompt": prompts[turn] if prompts else None, "reward": _components(rewards.get(turn))}
        for turn, row in enumerate(rows)
    ]


def _rows(store: Store, run: str, iteration: int, trajectory: str) -> tuple[list[dict[str, Any]], Mapping[str, str]]:
    """Return the rows of a trajectory, those that show images with their digests, and role -> key of the iteration's
    data."""
    stages = recorded_stages(store, run, iteration)
    if "rollout" not in stages:
        raise ArtifactMissingError(f"iteration {iteration} of {run} has no rollout; it only evaluates a checkpoint")
    data = recorded_data(stages)
    turns = read_attempts(store, "turns", data)
    chosen = turns.filter(pc.equal(turns["trajectory_id"], trajectory)).sort_by("turn")
    if not chosen.num_rows:
        ids = sorted(set(turns["trajectory_id"].to_pylist()))
        known = f"it has {len(ids)}, from {ids[0]} to {ids[-1]}" if ids else "it has none"
        raise ConfigError(f"iteration {iteration} of {run} has no trajectory {quoted(trajectory)}; {known}")
    rows = chosen.to_pylist()
    for kinds in (attempt["rollout"] for attempt in attempts(stages)):
        if "turn_images" in kinds:
            shown = store.read_table("turn_images", kinds["turn_images"]).sort_by("position")
            for image in shown.filter(pc.equal(shown["trajectory_id"], trajectory)).to_pylist():
                rows[image["turn"]].setdefault("images", []).append(image["image"])
    return rows, data


def _rewards(store: Store, data: Mapping[str, str], trajectory: str) -> dict[int, Row]:
    """Return turn -> its row of `rewards`; empty if the stage has not run."""
    if not of_kind(data, "rewards"):
        return {}
    rewards = read_attempts(store, "rewards", data)
    return {row["turn"]: row for row in rewards.filter(pc.equal(rewards["trajectory_id"], trajectory)).to_pylist()}


def _components(reward: Row | None) -> dict[str, float] | None:
    return None if reward is None else dict(zip(reward["component_names"], reward["component_values"], strict=True))


def _ending(last: Row) -> str:
    """Describe in words whether the goal was reached and, if not, what ended the episode, as far as that is known."""
    imported = imported_facts(last)
    outcome = _OUTCOMES[last["success"] if "success" not in imported.get("absent", ()) else None]
    if last["success"] or imported:
        return outcome
    if last["terminated"]:
        return f"{outcome}: the environment ended the episode"
    if last["truncated"] and last["actions_left"] == len(last["executed_actions"]) + last["forfeited_actions"]:
        return f"{outcome}: no action was left"
    return f"{outcome}: a limit of turns, context or time ended the episode" if last["truncated"] else outcome


def _prompts(store: Store, run: str, rows: Sequence[Row]) -> list[Messages] | None:
    """Decode the messages that each turn added to the context; None if no checkpoint has the tokenizer."""
    from starpo.ragen.agents.prompting.transcript import Transcriber
    from starpo.ragen.runs.stored_policy import checkpoints_of, find_tokenizer

    tokenizer = find_tokenizer(store, checkpoints_of(store, store.runs.iterations(run)))
    if tokenizer is None:
        return None
    transcriber = Transcriber(tokenizer, store.runs.get(run).config.get("agent", {}))
    return [[vars(message) for message in messages] for messages in transcriber.read(rows)]


def _print_turn(
    console: Console, rows: Sequence[Row], turn: int, prompt: Messages, reward: Mapping[str, float] | None
) -> None:
    row = rows[turn]
    start = max(place for place in range(turn + 1) if rows[place]["is_context_start"])
    before = sum(len(earlier["prompt_ids"]) + len(earlier["response_ids"]) for earlier in rows[start:turn])
    left = f"{row['actions_left']} action{'' if row['actions_left'] == 1 else 's'} left"
    console.print(f"turn {row['turn']}, {left}", style="bold")
    about = f"after {before} since turn {start}" if before else "all that the model saw"
    is_counted = row["prompt_ids"] or not imported_facts(row)
    facts: dict[str, Any] = {"context": f"{len(row['prompt_ids'])} tokens, {about}" if is_counted else "not recorded"}
    for number, message in enumerate(prompt):
        name = f"{message['role']} {number + 1}" if len(prompt) > 1 else message["role"]
        facts[name] = message["text"].strip("\n")
    if "images" in row:
        facts["images"] = f"the model saw {', '.join(row['images'])}; `starpo report` draws them"
    facts |= {"observation": row["observation"], "response": row["response"]}
    paid = zip(row["executed_actions"], row["action_rewards"], strict=True)
    facts["executed"] = ", ".join(f"{action} {value:+.3g}" for action, value in paid) or "nothing"
    if row["forfeited_actions"]:
        facts["forfeited"] = counted(row["forfeited_actions"], "action")
    if reward is not None:
        parts = ", ".join(f"{name} {value:+.3g}" for name, value in reward.items() if value)
        facts["reward"] = f"{sum(reward.values()):.4g}{f' ({parts})' if parts else ''}"
    print_record(console, {**facts, "status": row["status"]})
