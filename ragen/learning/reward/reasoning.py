"""Reward for the form of the reasoning."""

import numpy as np
import polars as pl
import pyarrow as pa

from starpo.ragen.agents.prompting.forms import parts
from starpo.ragen.config.reward import RewardConfig


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
        is_ok and bool(found := parts(think)) and all(part.strip() for part in found.values())
        for is_ok, think in frame.iter_rows()
    ]
    reward = config.options["reasoning_format"]["reward"]
    assert isinstance(reward, int | float)
    return np.where(np.array(is_formed, bool), float(reward), 0.0)
