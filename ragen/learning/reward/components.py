"""The components of a turn's reward: pure functions of stored turns, each registered in `ragen.core.registry.REWARDS`.

A component reads columns of `turns` and returns one number a row; it asks no environment and parses no text. A turn's
total is the sum of those that `reward.components` names, so one that does not apply to a row gives 0 there.

    turns -> environment + format + forfeit + overlong -> rewards.total
"""

import numpy as np
import polars as pl
import pyarrow as pa

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.reward_components import OverlongOptions


def environment_reward(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """The sum of what the environment paid for the turn's executed actions.

    Args:
        turns: Dataset `turns`.
        config: Not read; every component has the same signature.

    Returns:
        float64 [rows]; 0 where no action was executed.
    """
    frame = pl.DataFrame(turns.select(["action_rewards"]))
    return frame["action_rewards"].list.sum().cast(pl.Float64).to_numpy()


def format_penalty(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """`config.format_penalty` for every malformed response (RAGEN, objectives: -0.1).

    Only a response can be malformed: a turn that has none (the context was full, the environment failed, the deadline
    passed) is not penalised.

    Args:
        turns: Dataset `turns`.
        config: Gives the penalty.

    Returns:
        float64 [rows].
    """
    frame = pl.DataFrame(turns.select(["format_ok", "finish_reason"]))
    is_malformed = ~frame["format_ok"] & (frame["finish_reason"] != "none")
    return np.where(is_malformed.to_numpy(), config.format_penalty, 0.0)


def forfeited_actions(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """The environment's price of the actions a turn gave up instead of taking them.

    A malformed response gives up `forfeited_actions`. A turn without a response because the context was full
    ('truncated') gives up all its `actions_left`: otherwise, where actions cost something, talking until the context
    is full would end the episode more cheaply than acting and failing.

    Args:
        turns: Dataset `turns`.
        config: Not read.

    Returns:
        float64 [rows], at most 0.
    """
    frame = pl.DataFrame(turns.select(["forfeited_actions", "actions_left", "action_cost", "status"]))
    given_up = pl.when(pl.col("status") == "truncated").then("actions_left").otherwise("forfeited_actions")
    # `+ 0.0` turns the -0.0 of "nothing given up, at a cost" into 0.0: equal numbers should have equal digests.
    return frame.select(given_up * pl.col("action_cost")).to_series().cast(pl.Float64).to_numpy() + 0.0


def overlong_penalty(turns: pa.Table, config: RewardConfig) -> np.ndarray:
    """What a response's length costs near its limit (DAPO, arXiv 2503.14476, equation 13), for every response.

        length <= max - buffer:        0
        max - buffer < length <= max:  (max - buffer - length) / buffer * factor
        max < length:                  -factor

    The paper pays an answer once; here every turn's response is held against the same limit. Tokens are those sampled,
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
    # `0.0 -` and not a minus sign: a length that costs nothing costs 0.0, not -0.0
    return 0.0 - np.clip(num_over / options.buffer_tokens, 0.0, 1.0) * options.factor
