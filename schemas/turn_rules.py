"""Rules of the datasets `turns` and `siblings` beyond their columns, per turn, per trajectory and per group.

rule -> turn_rules -> rules -> models -> validate
"""

import polars as pl
from polars import col

from starpo.schemas.datasets import ERROR_STATUSES, UNKNOWN_FINISH
from starpo.schemas.rule import Rule, aligned, contained, counted, same

_is_error = col("status").is_in(ERROR_STATUSES)
_has_tokens = col("response_ids").list.len() > 0
_is_unknown = col("finish_reason") == UNKNOWN_FINISH
_has_response = _has_tokens | _is_unknown
_num_executed = col("executed_actions").list.len()
_is_end = col("terminated") | col("truncated")

TURN_ROWS = (
    Rule(
        ("behaviour_logprobs", "response_ids", "finish_reason"),
        "has as many items as response_ids, or none where finish_reason is 'unknown'",
        (col("behaviour_logprobs").list.len() == col("response_ids").list.len())
        | (_is_unknown & (col("behaviour_logprobs").list.len() == 0)),
    ),
    *aligned("executed_actions", "action_rewards", "action_effective"),
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
        "is not empty where there is a response whose tokens are known",
        (col("prompt_ids").list.len() > 0) | ~_has_tokens,
    ),
    Rule(
        ("finish_reason", "response_ids"),
        "is 'none' exactly where response_ids is empty, unless it is 'unknown'",
        (col("finish_reason") == "none") == ~_has_response,
    ),
    Rule(
        ("origin", "response_ids"),
        "is 'search' only where there is a response",
        (col("origin") != "search") | _has_response,
    ),
    Rule(
        ("num_candidates", "origin"),
        "is 1, or with origin 'search' at least 2",
        pl.when(col("origin") == "search").then(col("num_candidates") >= 2).otherwise(col("num_candidates") == 1),
    ),
    Rule(
        ("num_as_good", "num_candidates"),
        "lies between 1 and num_candidates",
        (col("num_as_good") >= 1) & (col("num_as_good") <= col("num_candidates")),
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
        "is not null where the format is valid or an action is named",
        col("answer").is_not_null() | (~col("format_ok") & (col("parsed_actions").list.len() == 0)),
    ),
)

_num_taken = col("action_effective").list.len().cast(pl.Int64)  # same length as executed_actions, in fewer bytes
_left_before = col("actions_left").cast(pl.Int64).sort_by("turn")
_left_after = (col("actions_left") - _num_taken - col("forfeited_actions")).sort_by("turn")


def _first_turn(holds: pl.Expr) -> pl.Expr:
    """Return the first turn in which the expression holds; null if there is none."""
    return col("turn").filter(holds).min()


def _same_unless_chosen(name: str) -> Rule:
    values = col(name).filter(col("origin") != "search")
    holds = (values.min() == values.max()) | (values.len() == 0)
    return Rule(
        (name, "origin", "trajectory_id"),
        "is the same in all rows of a trajectory_id except those of origin 'search'",
        holds,
        ("trajectory_id",),
    )


_is_greedy = col("origin") == "greedy"

TURN_TABLE = (
    *(same(name, "trajectory_id") for name in ("group_id", "member")),
    *(_same_unless_chosen(name) for name in ("dynamics_seed", "sampling_seed")),
    Rule(
        ("origin", "trajectory_id"),
        "is 'greedy' in all rows of a trajectory_id or in none",
        _is_greedy.all() | ~_is_greedy.any(),
        ("trajectory_id",),
    ),
    Rule(
        ("origin", "member", "group_id"),
        "is 'greedy' only for the last member of a group",
        (col("member").filter(_is_greedy) == col("member").max()).all(),
        ("group_id",),
    ),
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
        "is unique to its member of a group",
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
        "has the same maximum in every group: all groups have the same number of trajectories",
        col("member").max().over("group_id") == col("member").max(),
    ),
)

SIBLING_ROWS = (
    *aligned("response_ids", "behaviour_logprobs"),
    Rule(
        ("parent", "turn"),
        "is -1 on the first turn and at least 0 on others",
        (col("parent") < 0) == (col("turn") == 0),
    ),
)

_chosen_by_turn = [col(name).filter("chosen").sort_by(col("turn").filter("chosen")) for name in ("parent", "candidate")]

SIBLING_TABLE = (
    Rule(
        ("chosen", "trajectory_id", "turn"),
        "is true for one candidate of a turn",
        col("chosen").sum() == 1,
        ("trajectory_id", "turn"),
    ),
    Rule(
        ("score", "chosen", "trajectory_id", "turn"),
        "is null for the chosen candidate only if it is null for all candidates of the turn",
        col("score").filter("chosen").is_not_null().any() | col("score").is_null().all(),
        ("trajectory_id", "turn"),
    ),
    Rule(
        ("turn", "trajectory_id"),
        "counts 0, 1, 2, ... without gaps in every trajectory_id",
        (col("turn").min() == 0) & (col("turn").max() + 1 == col("turn").n_unique()),
        ("trajectory_id",),
    ),
    Rule(
        ("parent", "candidate", "chosen", "turn", "trajectory_id"),
        "is, for a chosen candidate, the candidate chosen in the previous turn",
        (_chosen_by_turn[0].slice(1) == _chosen_by_turn[1].slice(0, col("chosen").sum() - 1)).all(),
        ("trajectory_id",),
    ),
)
