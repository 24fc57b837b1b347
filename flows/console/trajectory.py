"""A trajectory in a terminal, turn by turn: prompts, observation, response, executed actions and their rewards."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from starpo.flows.console.listing import recorded_stages
from starpo.flows.console.table import print_record
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.core.errors import ArtifactMissingError, ConfigError
from starpo.ragen.core.visible import MAX_TEXT, quoted
from starpo.ragen.evidence.exchange.played import imported_facts
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import read_attempts, recorded_data

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
        as_json: Print the rows of dataset `turns`, each with its `prompt` as messages.

    Raises:
        StoreError: If there is no such run, or no rollout at that iteration.
        ConfigError: If the run has no such iteration, or the rollout no such trajectory.
    """
    stages = recorded_stages(store, run, iteration)
    if "rollout" not in stages:
        raise ArtifactMissingError(f"iteration {iteration} of {run} has no rollout; it only evaluates a checkpoint")
    turns = read_attempts(store, "turns", recorded_data(stages))
    chosen = turns.filter(pc.equal(turns["trajectory_id"], trajectory)).sort_by("turn")
    if not chosen.num_rows:
        ids = sorted(set(turns["trajectory_id"].to_pylist()))
        known = f"it has {len(ids)}, from {ids[0]} to {ids[-1]}" if ids else "it has none"
        raise ConfigError(f"iteration {iteration} of {run} has no trajectory {quoted(trajectory)}; {known}")
    rows = chosen.to_pylist()
    prompts = _prompts(store, run, rows) if should_show_prompts or as_json else None
    if as_json:
        print_json([{**row, "prompt": prompts[turn] if prompts else None} for turn, row in enumerate(rows)])
        return
    console = Console()
    for turn in range(len(rows)):
        _print_turn(console, rows, turn, prompts[turn] if prompts else [])
    is_known = "success" not in imported_facts(rows[-1]).get("absent", ())
    say(console, _OUTCOMES[rows[-1]["success"] if is_known else None])
    if any(len(text) > MAX_TEXT for row in rows for text in (row["observation"], row["response"])):
        say(console, "long texts are cut; --json shows them in full, and `ragen sql` parts of them")
    if not should_show_prompts:
        say(console, "--prompts shows the model's prompts")
    elif prompts is None:
        say(console, "prompts cannot be shown as text: no checkpoint with the run's tokenizer is in the store")


def _prompts(store: Store, run: str, rows: Sequence[Row]) -> list[Messages] | None:
    """Decode the messages that each turn added to the context; None if no checkpoint has the tokenizer."""
    from starpo.ragen.agents.policy.stored_tokenizer import checkpoints_of, find_tokenizer
    from starpo.ragen.agents.prompting.transcript import Transcriber

    tokenizer = find_tokenizer(store, checkpoints_of(store, store.runs.iterations(run)))
    if tokenizer is None:
        return None
    transcriber = Transcriber(tokenizer, store.runs.get(run).config.get("agent", {}))
    return [[vars(message) for message in messages] for messages in transcriber.read(rows)]


def _print_turn(console: Console, rows: Sequence[Row], turn: int, prompt: Messages) -> None:
    row = rows[turn]
    start = max(place for place in range(turn + 1) if rows[place]["is_context_start"])
    before = sum(len(seen["prompt_ids"]) + len(seen["response_ids"]) for seen in rows[start:turn])
    left = f"{row['actions_left']} action{'' if row['actions_left'] == 1 else 's'} left"
    console.print(f"turn {row['turn']}, {left}", style="bold")
    about = f"after {before} since turn {start}" if before else "all that the model saw"
    is_counted = row["prompt_ids"] or not imported_facts(row)
    facts: dict[str, Any] = {"context": f"{len(row['prompt_ids'])} tokens, {about}" if is_counted else "not recorded"}
    for number, message in enumerate(prompt):
        name = f"{message['role']} {number + 1}" if len(prompt) > 1 else message["role"]
        facts[name] = message["text"].strip("\n")
    facts |= {"observation": row["observation"], "response": row["response"]}
    paid = zip(row["executed_actions"], row["action_rewards"], strict=True)
    facts["executed"] = ", ".join(f"{action} {reward:+.3g}" for action, reward in paid) or "nothing"
    print_record(console, {**facts, "status": row["status"]})
