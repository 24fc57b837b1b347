"""Rewards by a judge outside: 'judge' (VAGEN) and 'checklist' (CM2).

    turns, template -> a prompt a turn -> Judge -> YES, NO -> rewards

Asked is only about well-formed responses. What the agent said goes in as JSON strings, its actions too, since these may
be any text: it cannot end them, and nothing in them stands where the judge's own instructions do.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.reward_components import PLACEHOLDER, ChecklistOptions, JudgeOptions
from starpo.ragen.learning.reward.judging import Judge
from starpo.ragen.store import Store

_COLUMNS = ["trajectory_id", "turn", "observation", "think", "answer", "format_ok", "executed_actions"]
_NOT_SEEN = "(nothing was observed after it: the episode ended)"

Facts = Mapping[str, str]
"""Placeholder -> what stands in its place."""


def judge(turns: pa.Table, config: RewardConfig, store: Store) -> np.ndarray:
    """The component's `reward` for every turn of which the judge says YES.

    Args:
        turns: Dataset `turns`.
        config: `options["judge"]`.
        store: Keeps what the judge said.

    Returns:
        float64 [rows]; 0 where it says NO, and where the response was malformed.

    Raises:
        EngineError: If it does not answer; see `Judge.ask`.
    """
    options = JudgeOptions.model_validate(config.options["judge"])
    prompts = [None if facts is None else _filled_in(options.template, facts) for facts in _facts(turns)]
    verdicts = Judge(options, store, "judge").ask([prompt for prompt in prompts if prompt is not None])
    return np.array([options.reward * verdicts[prompt] if prompt is not None else 0.0 for prompt in prompts])


def checklist(turns: pa.Table, config: RewardConfig, store: Store) -> np.ndarray:
    """`reward * sum of the weights of the items that a turn passes / sum of all weights` (after CM2).

    Items are asked one after the other, each of the turns that passed all items it depends on; of the others it is not
    asked, and they do not pass it.

    Args:
        turns: Dataset `turns`.
        config: `options["checklist"]`.
        store: Keeps what the judge said.

    Returns:
        float64 [rows]; 0 where the response was malformed.

    Raises:
        EngineError: If it does not answer; see `Judge.ask`.
    """
    options = ChecklistOptions.model_validate(config.options["checklist"])
    asker, rows = Judge(options, store, "checklist"), _facts(turns)
    has_passed = np.zeros((len(options.items), len(rows)), bool)
    for number, item in enumerate(options.items):
        prompts = {
            place: _filled_in(options.template, {**facts, "question": item.question})
            for place, facts in enumerate(rows)
            if facts is not None and all(has_passed[other, place] for other in item.depends_on)
        }
        verdicts = asker.ask(list(prompts.values()))
        for place, prompt in prompts.items():
            has_passed[number, place] = verdicts[prompt]
    weights = np.array([item.weight for item in options.items])
    return options.reward * (weights @ has_passed) / weights.sum()


def _facts(turns: pa.Table) -> list[Facts | None]:
    """What there is to say of each turn; None: the response was malformed."""
    rows = turns.select(_COLUMNS).to_pylist()
    observed = {(row["trajectory_id"], row["turn"]): row["observation"] for row in rows}
    return [_facts_of(row, observed.get((row["trajectory_id"], row["turn"] + 1), _NOT_SEEN)) for row in rows]


def _facts_of(row: Mapping[str, Any], after: str) -> Facts | None:
    if not row["format_ok"]:
        return None
    return {
        "observation": row["observation"],
        "think": json.dumps(row["think"] or "", ensure_ascii=False),
        "answer": json.dumps(row["answer"], ensure_ascii=False),
        "actions": ", ".join(json.dumps(action, ensure_ascii=False) for action in row["executed_actions"]) or "none",
        "next_observation": after,
    }


def _filled_in(template: str, facts: Facts) -> str:
    """In one pass, so that braces in what is filled in stay what they are."""
    return PLACEHOLDER.sub(lambda found: facts[found[1]], template)
