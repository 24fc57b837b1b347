"""The components of a turn's reward: pure functions of stored turns, each registered in `ragen.core.registry.REWARDS`.

A component reads columns of `turns` and returns one number per row; those in this module query no environment and parse
no text. A turn's total is the sum of the components in `reward.components`, so one that does not apply to a row gives 0
there.

    turns -> environment + format + forfeit + overlong -> rewards.total
"""

import numpy as np
import polars as pl
import pyarrow as pa

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.reward_components import OverlongOptions


def environment_reward(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """Sum the environment's rewards for the turn's executed actions.

    Args:
        turns: Dataset `turns`.
        config: Not read; every component has the same signature.

    Returns:
        float64 [rows]; 0 where no action was executed.
    """
    frame = pl.DataFrame(turns.select(["action_rewards"]))
    return frame["action_rewards"].list.sum().cast(pl.Float64).to_numpy()


def format_penalty(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """Give `config.format_penalty` to every malformed response (RAGEN, objectives: -0.1).

    Only a response can be malformed: a turn without one (the context was full, the environment failed, the deadline
    passed) is not penalised.

    Args:
        turns: Dataset `turns`.
        config: Holds the penalty.

    Returns:
        float64 [rows].
    """
    frame = pl.DataFrame(turns.select(["format_ok", "finish_reason"]))
    is_malformed = ~frame["format_ok"] & (frame["finish_reason"] != "none")
    return np.where(is_malformed.to_numpy(), config.format_penalty, 0.0)


def forfeited_actions(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """Charge the environment's action cost for the actions that a turn forfeited.

    A malformed response forfeits `forfeited_actions`. A turn without a response because the context was full
    ('truncated') forfeits all its `actions_left`. Otherwise, in environments with an action cost, talking until the
    context is full would be cheaper than acting and failing.

    Args:
        turns: Dataset `turns`.
        config: Not read.

    Returns:
        float64 [rows], at most 0.
    """
    frame = pl.DataFrame(turns.select(["forfeited_actions", "actions_left", "action_cost", "status"]))
    given_up = pl.when(pl.col("status") == "truncated").then("actions_left").otherwise("forfeited_actions")
    # `+ 0.0` turns -0.0 (nothing forfeited, at a cost) into 0.0: equal numbers should have equal digests.
    return frame.select(given_up * pl.col("action_cost")).to_series().cast(pl.Float64).to_numpy() + 0.0


def overlong_penalty(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """Penalise responses near the length limit (DAPO, arXiv 2503.14476, equation 13).

        length <= max - buffer:        0
        max - buffer < length <= max:  (max - buffer - length) / buffer * factor
        max < length:                  -factor

    The paper scores one answer per episode; here every turn's response has the same limit. Tokens are those sampled,
    the end token included.

    Args:
        turns: Dataset `turns`.
        config: `options["overlong"]`: max_tokens, buffer_tokens and factor.

    Returns:
        float64 [rows], from -factor to 0; 0 for a turn without a response.
    """
    options = OverlongOptions.model_validate(config.options["overlong"])
    num_tokens = pl.DataFrame(turns.select(["response_ids"]))["response_ids"].list.len().cast(pl.Float64).to_numpy()
    num_over = num_tokens - (options.max_tokens - options.buffer_tokens)
    # `0.0 -` instead of a unary minus, so that a length without penalty gives 0.0, not -0.0
    return 0.0 - np.clip(num_over / options.buffer_tokens, 0.0, 1.0) * options.factor
