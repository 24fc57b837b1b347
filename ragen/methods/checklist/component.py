"""Reward component 'checklist': several questions about a turn, and a reward for those that it passes (CM2)."""

import numpy as np
import pyarrow as pa

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.methods.checklist.settings import ChecklistOptions
from starpo.ragen.methods.judge.component import facts_of
from starpo.ragen.methods.judge.judging import Judge
from starpo.ragen.methods.judge.template import filled_in
from starpo.ragen.store import Store


def checklist(turns: pa.Table, config: RewardConfig, store: Store) -> np.ndarray:
    """Give `reward * sum of the weights of the items that a turn passes / sum of all weights` (after CM2).

    Items are judged one after the other, each for the turns that passed all items it depends on. The other turns fail
    the item without a query.

    Args:
        turns: Dataset `turns`.
        config: `options["checklist"]`.
        store: Keeps the judge's answers.

    Returns:
        float64 [rows]; 0 where the response was malformed.

    Raises:
        EngineError: If the judge gives no valid answer; see `Judge.ask`.
    """
    options = ChecklistOptions.model_validate(config.options["checklist"])
    asker, rows = Judge(options, store, "checklist"), facts_of(turns)
    has_passed = np.zeros((len(options.items), len(rows)), bool)
    for number, item in enumerate(options.items):
        prompts = {
            place: filled_in(options.template, {**facts, "question": item.question})
            for place, facts in enumerate(rows)
            if facts is not None and all(has_passed[other, place] for other in item.depends_on)
        }
        verdicts = asker.ask(list(prompts.values()))
        for place, prompt in prompts.items():
            has_passed[number, place] = verdicts[prompt]
    weights = np.array([item.weight for item in options.items])
    return options.reward * (weights @ has_passed) / weights.sum()
