"""Rewards for the form of the reasoning, and for acting on it."""

import numpy as np
import polars as pl
import pyarrow as pa

from starpo.ragen.agents.prompting.forms import parts
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.envs.plan import read_plan


def reasoning_format(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """Give the component's `reward` to well-formed responses whose reasoning has the agent's form, no part blank.

    VAGEN's format reward. The parser has already checked the agent's form: a response in another form is malformed.

    Args:
        turns: Dataset `turns`.
        config: `options["reasoning_format"]`.

    Returns:
        float64 [rows].
    """
    frame = pl.DataFrame(turns.select(["format_ok", "think"]))
    is_formed = [
        is_ok and bool(split := parts(think)) and all(part.strip() for part in split.values())
        for is_ok, think in frame.iter_rows()
    ]
    return np.where(np.array(is_formed, bool), _reward(config, "reasoning_format"), 0.0)


def agreement(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """Give `reward * a / max(p, e)`, where the first a of p planned and e executed actions agree.

    The plan is the last one in <reasoning>, or in the whole reasoning if it has no parts (`ragen.envs.plan`). Planned
    actions that the end of the episode prevented do not count.

    Args:
        turns: Dataset `turns`.
        config: `options["agreement"]`.

    Returns:
        float64 [rows]; 0 where the response was malformed, nothing was planned, or nothing was executed.
    """
    frame = pl.DataFrame(turns.select(["format_ok", "think", "executed_actions", "terminated", "truncated"]))
    shares = [
        _agreed(think, [action.casefold() for action in executed], is_cut=terminated or truncated) if is_ok else 0.0
        for is_ok, think, executed, terminated, truncated in frame.iter_rows()
    ]
    return _reward(config, "agreement") * np.array(shares, np.float64)


def _agreed(think: str | None, executed: list[str], *, is_cut: bool) -> float:
    plan = read_plan(parts(think).get("reasoning", think or ""))
    plan = plan[: len(executed)] if is_cut else plan
    if not plan or not executed:
        return 0.0
    pairs = enumerate(zip(plan, executed, strict=False))
    same = next((place for place, (planned, done) in pairs if planned != done), min(len(plan), len(executed)))
    return same / max(len(plan), len(executed))


def _reward(config: RewardConfig, name: str) -> float:
    reward = config.options[name]["reward"]
    assert isinstance(reward, int | float)
    return float(reward)
