"""Reward component 'judge': a prompt for each turn, and a reward for each YES (VAGEN).

Only well-formed responses are judged. The agent's text, including its actions, which may be any text, enters the prompt
as JSON strings: it cannot close the string, and so cannot pose as the judge's own instructions.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.methods.judge.judging import Judge
from starpo.ragen.methods.judge.settings import JudgeOptions
from starpo.ragen.methods.judge.template import Facts, as_string, filled_in
from starpo.ragen.store import Store

_COLUMNS = ["trajectory_id", "turn", "observation", "think", "answer", "format_ok", "executed_actions"]
_NOT_SEEN = "(nothing was observed after it: the episode ended)"


def judge(turns: pa.Table, config: RewardConfig, store: Store) -> np.ndarray:
    """Give the component's `reward` to every turn that the judge answers with YES.

    Args:
        turns: Dataset `turns`.
        config: `options["judge"]`.
        store: Keeps the judge's answers.

    Returns:
        float64 [rows]; 0 where the answer is NO or the response was malformed.

    Raises:
        EngineError: If the judge gives no valid answer; see `Judge.ask`.
    """
    options = JudgeOptions.model_validate(config.options["judge"])
    prompts = [None if facts is None else filled_in(options.template, facts) for facts in facts_of(turns)]
    verdicts = Judge(options, store, "judge").ask([prompt for prompt in prompts if prompt is not None])
    return np.array([options.reward * verdicts[prompt] if prompt is not None else 0.0 for prompt in prompts])


def facts_of(turns: pa.Table) -> list[Facts | None]:
    """Return the template's values for each turn; None for a malformed response."""
    rows = turns.select(_COLUMNS).to_pylist()
    observed = {(row["trajectory_id"], row["turn"]): row["observation"] for row in rows}
    return [_facts(row, observed.get((row["trajectory_id"], row["turn"] + 1), _NOT_SEEN)) for row in rows]


def _facts(row: Mapping[str, Any], after: str) -> Facts | None:
    if not row["format_ok"]:
        return None
    return {
        "observation": row["observation"],
        "think": as_string(row["think"] or ""),
        "answer": as_string(row["answer"]),
        "actions": ", ".join(as_string(action) for action in row["executed_actions"]) or "none",
        "next_observation": after,
    }
