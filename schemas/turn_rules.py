"""What the dataset `turns` must obey beyond its columns, turn by turn and over a trajectory and a group.

rule -> turn_rules -> rules -> models -> validate
"""

import polars as pl
from polars import col

from starpo.schemas.datasets import ERROR_STATUSES, FINISH_REASONS, STATUSES, UNKNOWN_FINISH
from starpo.schemas.rule import (
    Rule,
    aligned,
    at_least,
    contained,
    counted,
    digest,
    each_item,
    json_object,
    not_empty,
    one_of,
    same,
)

MAX_VOCABULARY = 2**20
"""No policy has more tokens; an id beyond is none."""

MIN_LOGPROB = -104.0
"""Nats; the smallest positive float32 is exp(-103.3), and nothing samples a token whose probability is 0."""

_is_error = col("status").is_in(ERROR_STATUSES)
_has_tokens = col("response_ids").list.len() > 0
_is_unknown = col("finish_reason") == UNKNOWN_FINISH
_has_response = _has_tokens | _is_unknown
_num_executed = col("executed_actions").list.len()
_is_end = col("terminated") | col("truncated")

EPISODE_RULES = (*not_empty("env"), at_least("env_seed", 0), digest("initial_state_digest"))
"""Of turns and of evaluated episodes alike."""


def _each_id_is_known(name: str) -> pl.Expr:
    return (col(name).list.min() >= 0) & (col(name).list.max() < MAX_VOCABULARY)


_last_named = col("parsed_actions").list.last()
_is_ascii = pl.all_horizontal(text.str.len_bytes() == text.str.len_chars() for text in (col("answer"), _last_named))

TURN_ROWS = (
    *not_empty("trajectory_id", "group_id"),
    *EPISODE_RULES,
    *(at_least(name, 0) for name in ("dynamics_seed", "sampling_seed", "member", "turn", "forfeited_actions")),
    at_least("actions_left", 0),
    Rule(("action_cost",), "is finite and at most 0", col("action_cost").is_finite() & (col("action_cost") <= 0)),
    one_of("status", STATUSES),
    one_of("finish_reason", FINISH_REASONS),
    digest("state_digest"),
    *(
        Rule((name,), f"holds token ids from 0 to {MAX_VOCABULARY - 1}", _each_id_is_known(name))
        for name in ("prompt_ids", "response_ids")
    ),
    Rule(
        ("behaviour_logprobs", "response_ids", "finish_reason"),
        "has as many items as response_ids, or none where finish_reason is 'unknown'",
        (col("behaviour_logprobs").list.len() == col("response_ids").list.len())
        | (_is_unknown & (col("behaviour_logprobs").list.len() == 0)),
    ),
    Rule(
        ("behaviour_logprobs",),
        f"holds numbers from {MIN_LOGPROB:g} to 0",
        (col("behaviour_logprobs").list.min() >= MIN_LOGPROB)
        & (col("behaviour_logprobs").list.max() <= 0)
        & ~col("behaviour_logprobs").list.sum().is_nan(),
    ),
    *aligned("executed_actions", "action_rewards", "action_effective"),
    Rule(("action_rewards",), "holds finite numbers", each_item("action_rewards", pl.element().is_finite())),
    Rule(
        ("executed_actions", "parsed_actions"),
        "is a prefix of parsed_actions",
        col("parsed_actions").list.head(_num_executed) == col("executed_actions"),
    ),
    Rule(
        ("actions_left", "executed_actions", "forfeited_actions"),
        "covers the actions that were executed and forfeited",
        _num_executed.cast(pl.Int64) + col("forfeited_actions") <= col("actions_left"),
    ),
    Rule(("is_context_start", "turn"), "is true on the first turn", col("is_context_start") | (col("turn") != 0)),
    Rule(
        ("prompt_ids", "response_ids"),
        "is not empty where there is a response of which tokens are known",
        (col("prompt_ids").list.len() > 0) | ~_has_tokens,
    ),
    Rule(
        ("finish_reason", "response_ids"),
        "is 'none' exactly where response_ids is empty, unless it is 'unknown'",
        (col("finish_reason") == "none") == ~_has_response,
    ),
    Rule(
        ("format_ok", "response_ids", "finish_reason", "parsed_actions"),
        "is true only where there is a response that names an action",
        ~col("format_ok") | (_has_response & (col("parsed_actions").list.len() > 0)),
    ),
    Rule(
        ("executed_actions", "response_ids", "finish_reason"),
        "is empty where there is no response",
        (_num_executed == 0) | _has_response,
    ),
    Rule(
        ("status", "format_ok"),
        "is 'ok' only with format_ok, and 'format_error' or 'truncated' only without",
        _is_error | ((col("status") == "ok") == col("format_ok")),
    ),
    Rule(
        ("status", "finish_reason"),
        "is 'ok' or 'format_error' only where there is a response, and 'truncated' only where there is none",
        _is_error | ((col("status") == "truncated") == (col("finish_reason") == "none")),
    ),
    Rule(
        ("truncated", "status"),
        "is true where the status is 'truncated' or 'timeout'",
        col("truncated") | ~col("status").is_in(("truncated", "timeout")),
    ),
    Rule(
        ("forfeited_actions", "status", "executed_actions"),
        "is 0 where an action was executed, or the status is 'ok'",
        (col("forfeited_actions") == 0) | ((col("status") != "ok") & (_num_executed == 0)),
    ),
    Rule(
        ("response", "response_ids", "finish_reason"),
        "is empty where there is no response",
        (col("response").str.len_bytes() == 0) | _has_response,
    ),
    *(contained(name, "response") for name in ("think", "answer")),
    Rule(
        ("answer", "format_ok", "parsed_actions"),
        "is there where the format is right or an action is named",
        col("answer").is_not_null() | (~col("format_ok") & (col("parsed_actions").list.len() == 0)),
    ),
    Rule(
        ("parsed_actions", "answer"),
        "ends with what stands in the answer",
        ~_is_ascii  # other letters have several forms
        | col("answer").str.to_lowercase().str.contains(_last_named.str.to_lowercase(), literal=True),
    ),
    Rule(("executed_actions",), "holds no empty text", each_item("executed_actions", pl.element().str.len_bytes() > 0)),
    json_object("info"),
)

_num_taken = col("action_effective").list.len().cast(pl.Int64)  # as many as executed_actions, in fewer bytes
_left_before = col("actions_left").cast(pl.Int64).sort_by("turn")
_left_after = (col("actions_left") - _num_taken - col("forfeited_actions")).sort_by("turn")


def _first_turn(holds: pl.Expr) -> pl.Expr:
    """Of those where it holds; null where it never does."""
    return col("turn").filter(holds).min()


TURN_TABLE = (
    *(same(name, "trajectory_id") for name in ("group_id", "member", "dynamics_seed", "sampling_seed")),
    counted("turn", "trajectory_id"),
    Rule(
        ("terminated", "turn", "truncated", "trajectory_id"),
        "and truncated are true only on the last turn of a trajectory",
        pl.when(_is_end).then(col("turn")).min() == col("turn").max(),
        ("trajectory_id",),
    ),
    Rule(
        ("truncated", "turn", "terminated", "status", "trajectory_id"),
        "or terminated is true on the last turn of a trajectory, unless an error ended it",
        pl.when(_is_end | _is_error).then(col("turn")).max().fill_null(-1) == col("turn").max(),
        ("trajectory_id",),
    ),
    Rule(
        ("status", "turn", "trajectory_id"),
        "is 'env_error' or 'timeout' only on the last turn of a trajectory",
        pl.when(_is_error).then(col("turn")).min() == col("turn").max(),
        ("trajectory_id",),
    ),
    Rule(
        ("success", "turn", "trajectory_id"),
        "stays true once it is",
        _first_turn(col("success")) + col("success").sum() == pl.len(),
        ("trajectory_id",),
    ),
    Rule(
        ("success", "action_effective", "turn", "trajectory_id"),
        "is true only after an action was executed",
        _first_turn(col("success")) >= _first_turn(_num_taken > 0).fill_null(pl.len()),
        ("trajectory_id",),
    ),
    Rule(
        ("actions_left", "action_effective", "forfeited_actions", "turn", "trajectory_id"),
        "falls from turn to turn by the actions that were executed and forfeited",
        (_left_before.slice(1) == _left_after.slice(0, pl.len() - 1)).all(),
        ("trajectory_id",),
    ),
    Rule(
        ("actions_left", "turn", "group_id"),
        "is the same on the first turn of all trajectories of a group_id",
        col("actions_left").filter(col("turn") == 0).n_unique() <= 1,
        ("group_id",),
    ),
    *(same(name, "group_id") for name in ("env", "env_seed", "initial_state_digest", "action_cost")),
    Rule(
        ("trajectory_id", "group_id", "member", "turn"),
        "is one for each member of a group",
        pl.struct("group_id", "member", "turn").is_unique(),
    ),
    Rule(
        ("member", "group_id", "turn"),
        "counts 0, 1, 2, ... without gaps in every group_id",
        (col("member").min() == 0) & (col("member").max() + 1 == (col("turn") == 0).sum()),
        ("group_id",),
    ),
    Rule(
        ("member", "group_id"),
        "counts equally far in every group: all groups have as many trajectories",
        col("member").max().over("group_id") == col("member").max(),
    ),
)
