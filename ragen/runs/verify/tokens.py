"""Concatenated token ids of the turns, compared with the learner's segments.

    turns, rewards, selection, samples -> token_differences

The concatenation here is a plain loop over rows, written independently of `learners.trajectories`, which it checks.
"""

from collections.abc import Iterator
from itertools import zip_longest

import pyarrow as pa

from starpo.ragen.core.visible import quoted
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import Trajectory, assemble
from starpo.ragen.runs.verify.actions import Row, trajectories

_COLUMNS = [
    "trajectory_id", "group_id", "turn", "is_context_start", "prompt_ids", "response_ids", "behaviour_logprobs",
]  # fmt: skip


def token_differences(
    turns: pa.Table, rewards: pa.Table, selection: pa.Table, samples: pa.Table | None = None
) -> Iterator[str]:
    """Compare prompt and response ids since each context start with the learner's segments, token for token.

    Also compared: the mask (exactly the sampled tokens); the behaviour log-probs on it and in the learner's flat order;
    which trajectories are trained on (all valid ones of kept groups); and, with `samples`, their numbers of tokens.

    Args:
        turns: Dataset `turns`, rows in any order.
        rewards: Dataset `rewards` of these turns.
        selection: Dataset `selection` of their groups.
        samples: Dataset `samples` of the update; None if there was no update.

    Yields:
        A sentence for each trajectory that differs.
    """
    learned = assemble(turns, rewards, selection)
    recorded = _trained_on(turns, rewards, selection)
    names, learned_names = [rows[0]["trajectory_id"] for rows in recorded], [t.trajectory_id for t in learned]
    if names != learned_names:
        odd = sorted(set(names) ^ set(learned_names)) or ["their order"]
        yield f"the learner is given other trajectories than the filter kept: {quoted(odd[0])}"
        return
    has_differed = False
    for rows, trajectory in zip(recorded, learned, strict=True):
        difference = _context_difference(_contexts(rows), trajectory)
        if difference:
            has_differed = True
            yield f"trajectory {quoted(trajectory.trajectory_id)}, {difference}"
    if has_differed:
        return
    logprobs = [value for rows in recorded for row in rows for value in row["behaviour_logprobs"]]
    if ResponseTokens(learned).behaviour_logprobs_N.tolist() != logprobs:
        yield "behaviour_logprobs end to end differ from those in the learner's order of tokens"
    if samples is not None:
        lengths = [(rows[0]["trajectory_id"], sum(len(row["response_ids"]) for row in rows)) for rows in recorded]
        trained = list(zip(samples["trajectory_id"].to_pylist(), samples["num_tokens"].to_pylist(), strict=True))
        for stored, expected in zip_longest(trained, lengths):
            if stored != expected:
                yield f"samples has (trajectory_id, num_tokens) {quoted(stored)}, the turns give {quoted(expected)}"


def _trained_on(turns: pa.Table, rewards: pa.Table, selection: pa.Table) -> list[list[Row]]:
    kept = {row["group_id"] for row in selection.select(["group_id", "kept"]).to_pylist() if row["kept"]}
    validity = rewards.select(["trajectory_id", "is_valid"]).to_pylist()
    invalid = {row["trajectory_id"] for row in validity if not row["is_valid"]}
    return [
        rows
        for rows in trajectories(turns, _COLUMNS)
        if rows[0]["group_id"] in kept and rows[0]["trajectory_id"] not in invalid
    ]


def _contexts(rows: list[Row]) -> list[Row]:
    """Return what the model saw from each context start to the last response in it, omitting contexts without one."""
    contexts: list[Row] = []
    for number, row in enumerate(rows):
        if number == 0 or row["is_context_start"]:
            contexts.append({"turn": row["turn"], "token_ids": [], "response_mask": [], "behaviour_logprobs": []})
        context, prompt, response = contexts[-1], row["prompt_ids"], row["response_ids"]
        context["token_ids"] += prompt + response
        context["response_mask"] += [False] * len(prompt) + [True] * len(response)
        context["behaviour_logprobs"] += [0.0] * len(prompt) + row["behaviour_logprobs"]
    for context in contexts:
        mask = context["response_mask"]
        length = len(mask) - (mask[::-1].index(True) if True in mask else len(mask))
        for name in ("token_ids", "response_mask", "behaviour_logprobs"):
            del context[name][length:]
    return [context for context in contexts if context["token_ids"]]


def _context_difference(contexts: list[Row], trajectory: Trajectory) -> str:
    if len(contexts) != len(trajectory.segments):
        return f"{len(contexts)} contexts were seen, the learner is given {len(trajectory.segments)}"
    for context, segment in zip(contexts, trajectory.segments, strict=True):
        for name in ("token_ids", "response_mask", "behaviour_logprobs"):
            recorded, given = context[name], getattr(segment, name).tolist()
            if recorded != given:
                where = next(
                    (i for i, pair in enumerate(zip(recorded, given, strict=False)) if pair[0] != pair[1]), None
                )
                place = min(len(recorded), len(given)) if where is None else where
                return f"context begun in turn {context['turn']}: {name} differs at token {place}"
    return ""
