"""Each case breaks a rule on purpose, and the report must name it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from starpo.schemas import datasets
from starpo.schemas.checks import CHECKS
from starpo.schemas.datasets import DATASETS
from starpo.schemas.rules import ACROSS_RULES, ROW_RULES
from starpo.schemas.validate import FAILURE_CASES, ContractViolation, validate
from tests.examples import GROUP_SIZE, TURNS_EACH, example
from tests.schemas.changes import Rows, rebuilt, setting, setting_where


def broken_rules(table: pa.Table, kind: str) -> set[tuple[str, str]]:
    """Return (column, rule) of all rules that a table breaks."""
    with pytest.raises(ContractViolation) as caught:
        validate(table, kind)
    cases = caught.value.failure_cases
    assert cases.schema == FAILURE_CASES
    return set(zip(cases["column"].to_pylist(), cases["rule"].to_pylist(), strict=True))


@pytest.mark.parametrize("kind", DATASETS)
def test_example_is_valid(kind: str) -> None:
    validate(example(kind), kind)


@pytest.mark.parametrize("kind", DATASETS)
def test_empty_dataset_is_valid(kind: str) -> None:
    validate(DATASETS[kind].schema.empty_table(), kind)


NO_RESPONSE = {**datasets.NO_RESPONSE, "prompt_ids": [], "terminated": False}


@pytest.mark.parametrize(
    "turn",
    [
        {**NO_RESPONSE, "status": "truncated", "truncated": True},
        {**NO_RESPONSE, "status": "timeout", "truncated": True},
        {**NO_RESPONSE, "status": "env_error", "truncated": False},
        {"status": "env_error", "terminated": False, "truncated": False},
        {
            "status": "format_error", "format_ok": False, "forfeited_actions": 2, "parsed_actions": [],
            "executed_actions": [], "action_rewards": [], "action_effective": [], "answer": None,
        },
        {
            "status": "format_error", "format_ok": False, "parsed_actions": ["Up", "Left", "Jump"],
            "answer": "up ||Left||Jump", "response": "<answer>up ||Left||Jump</answer>", "think": None,
        },
    ],
)  # fmt: skip
def test_last_turn_accepts_every_failure(turn: dict[str, Any]) -> None:
    validate(rebuilt(example("turns"), setting(TURNS_EACH - 1, **turn)), "turns")


TURN_FAULTS = [
    (setting(3, action_cost=0.5), "action_cost", "is finite and at most 0"),
    (setting(3, action_cost=float("nan")), "action_cost", "is finite and at most 0"),
    (setting(3, state_digest="0123456789ABCDEF"), "state_digest", "is 16 hexadecimal digits"),
    (setting(3, initial_state_digest="0"), "initial_state_digest", "is 16 hexadecimal digits"),
    (setting(3, prompt_ids=[5, -1]), "prompt_ids", "token ids from 0"),
    (setting(3, response_ids=[-1] * 17), "response_ids", "token ids from 0"),
    (setting(3, behaviour_logprobs=[-0.1] * 16), "behaviour_logprobs", "as many items as response_ids"),
    (setting(3, behaviour_logprobs=[-0.1] * 16 + [0.1]), "behaviour_logprobs", "numbers from -104 to 0"),
    (setting(3, behaviour_logprobs=[-0.1] * 16 + [float("nan")]), "behaviour_logprobs", "numbers from -104 to 0"),
    (setting(3, behaviour_logprobs=[-0.1] * 16 + [float("-inf")]), "behaviour_logprobs", "numbers from -104 to 0"),
    (setting(3, prompt_ids=[5, 2**20]), "prompt_ids", "token ids from 0 to 1048575"),
    (setting(3, behaviour_logprobs=[-0.1] * 16 + [-105.0]), "behaviour_logprobs", "numbers from -104 to 0"),
    (setting(3, response="", think=None, answer=None, response_ids=[], behaviour_logprobs=[]), "format_ok", "names"),
    (setting(3, **{**NO_RESPONSE, "response": "so"}), "response", "empty where there is no response"),
    (setting(3, think="the box is above"), "think", "contained in response"),
    (setting(3, answer="Down"), "answer", "contained in response"),
    (setting(3, answer=None), "answer", "where the format is valid"),
    (setting(3, parsed_actions=["", "Left"], executed_actions=["", "Left"]), "executed_actions", "no empty text"),
    (setting(3, info='{"a": }'), "info", "is a JSON object"),
    (setting(3, info="[1]"), "info", "is a JSON object"),
    (setting(3, info='{"a": NaN}'), "info", "is a JSON object"),
    (setting(3, status="env_error"), "status", "only on the last turn"),
    (setting(2, success=True), "success", "stays true once it is"),
    (setting_where(lambda r: r["member"] == 1, executed_actions=[], action_rewards=[], action_effective=[],
                   actions_left=10, success=True), "success", "only after an action"),
    (setting(3, actions_left=5), "actions_left", "falls from turn to turn"),
    (setting_where(lambda r: r["member"] == 1, actions_left=40), "actions_left", "falls from turn to turn"),
    (setting_where(lambda r: r["member"] == 1 and r["turn"] == 0, actions_left=11), "actions_left", "first turn"),
    (setting(3, action_cost=-0.2), "action_cost", "same in all rows of a group_id"),
    (setting(3, action_rewards=[-0.1]), "action_rewards", "as many items as executed_actions"),
    (setting(3, action_effective=[True] * 3), "action_effective", "as many items as executed_actions"),
    (setting(3, action_rewards=[-0.1, float("inf")]), "action_rewards", "finite numbers"),
    (setting(3, executed_actions=["Left", "Up"]), "executed_actions", "prefix of parsed_actions"),
    (setting(3, parsed_actions=["Up"]), "executed_actions", "prefix of parsed_actions"),
    (setting(3, actions_left=1), "actions_left", "covers the actions"),
    (setting(0, is_context_start=False), "is_context_start", "true on the first turn"),
    (setting(3, prompt_ids=[]), "prompt_ids", "not empty where there is a response"),
    (setting(3, finish_reason="none"), "finish_reason", "exactly where response_ids is empty"),
    (setting(3, response_ids=[], behaviour_logprobs=[]), "finish_reason", "exactly where response_ids is empty"),
    (setting(3, parsed_actions=[], executed_actions=[], action_rewards=[], action_effective=[]), "format_ok",
     "names an action"),
    (setting(4, **{**NO_RESPONSE, "executed_actions": ["Up"]}), "executed_actions", "empty where there is no response"),
    (setting(3, format_ok=False), "status", "'ok' only with format_ok"),
    (setting(3, status="format_error"), "status", "'ok' only with format_ok"),
    (setting(4, **{**NO_RESPONSE, "status": "format_error", "truncated": True}), "status", "'truncated' only where"),
    (setting(9, **{**NO_RESPONSE, "status": "timeout", "truncated": False}), "truncated", "'truncated' or 'timeout'"),
    (setting(3, forfeited_actions=1), "forfeited_actions", "is 0 where an action was executed"),
    (setting(3, info="none"), "info", "is a JSON object"),
    (setting(3, turn=2), "trajectory_id", "identify a row"),
    (setting(4, turn=5), "turn", "without gaps"),
    (setting(3, group_id="elsewhere"), "group_id", "same in all rows of a trajectory_id"),
    (setting(3, dynamics_seed=77), "dynamics_seed", "same in all rows of a trajectory_id"),
    (setting(3, sampling_seed=77), "sampling_seed", "same in all rows of a trajectory_id"),
    (setting(3, truncated=True), "terminated", "only on the last turn"),
    (setting(4, terminated=False), "truncated", "on the last turn of a trajectory, unless an error"),
    (setting_where(lambda r: r["trajectory_id"] == "group-00000000/0001", env_seed=9), "env_seed",
     "same in all rows of a group_id"),
    (setting_where(lambda r: r["member"] == 1, member=9), "member", "without gaps in every group_id"),
    (setting_where(lambda r: r["trajectory_id"] == "group-00000000/0001", member=0), "trajectory_id",
     "unique to its member"),
    (lambda rows: rows.__delitem__(slice(GROUP_SIZE * TURNS_EACH, GROUP_SIZE * TURNS_EACH + TURNS_EACH)), "member",
     "without gaps in every group_id"),
    (lambda rows: rows.__delitem__(slice(-TURNS_EACH, None)), "member", "the same number of trajectories"),
    (lambda rows: rows.pop(2), "turn", "without gaps in every trajectory_id"),
    (setting(3, origin="search"), "num_candidates", "is 1, or with origin 'search'"),
    (setting(3, num_as_good=2), "num_as_good", "between 1 and num_candidates"),
    (setting(4, **{**NO_RESPONSE, "origin": "search"}), "origin", "'search' only where"),
    (setting(3, origin="greedy"), "origin", "in all rows of a trajectory_id or in none"),
    (setting_where(lambda r: r["member"] == 1, origin="greedy"), "origin", "only for the last member"),
]  # fmt: skip

OTHER_FAULTS = [
    ("siblings", setting(1, score=None), "score", "is null for the chosen candidate only"),
    ("siblings", setting(3, parent=0), "parent", "chosen in the previous turn"),
    ("siblings", setting_where(lambda r: r["turn"] == 1, turn=2), "turn", "without gaps"),
    *((kind, lambda rows: rows.append(rows[0]), name, "identify a row") for kind, name in (
        ("siblings", "trajectory_id"), ("rewards", "trajectory_id"), ("samples", "trajectory_id"), ("episodes", "cell"),
        ("trained_tokens", "trajectory_id"), ("teacher_logprobs", "trajectory_id"), ("credits", "trajectory_id"),
        ("teacher_top_tokens", "trajectory_id"),
        ("credit_estimates", "estimator"),
        ("images", "digest"), ("turn_images", "trajectory_id"),
    )),
    ("turn_images", setting(1, position=9), "position", "after the placeholders"),
    ("rewards", setting(3, component_values=[-0.2]), "component_values", "as many items as component_names"),
    ("rewards", setting(3, component_values=[float("nan"), 0.0]), "component_values", "finite numbers"),
    ("rewards", setting(3, total=-0.3), "total", "sum of component_values"),
    ("rewards", setting_where(lambda r: True, trajectory_return=-1.1), "trajectory_return", "sum of total"),
    ("rewards", setting(3, is_valid=False), "is_valid", "same in all rows of a trajectory_id"),
    ("rewards", lambda rows: rows.pop(2), "turn", "without gaps"),
    ("rewards", setting(3, component_names=["format", "environment"]), "component_names", "same in all rows"),
    ("selection", setting(1, metric="mean"), "metric", "same in all rows"),
    ("selection", setting(1, num_trajectories=9), "num_trajectories", "same in all rows"),
    ("selection", setting(1, kept=False), "kept", "begins with 'kept'"),
    ("samples", setting(0, entropy=-0.1), "entropy", "between 0 and the logarithm of the largest vocabulary"),
    ("samples", setting(0, entropy=85 * 0.5), "entropy", "the logarithm of the largest vocabulary"),  # a sum of 85
    ("samples", setting(0, mean_ratio=-1.0), "mean_ratio", "is at least 0"),
    ("metrics", setting(1, iteration=1), "iteration", "same in all rows"),
    ("metrics", setting(1, stage="evaluate"), "stage", "same in all rows"),
    ("episodes", setting(0, num_response_tokens=0), "num_response_tokens", "non-empty responses"),
    ("episodes", setting(0, status="format_error"), "status", "'format_error' only with one"),
    ("episodes", setting(1, status="ok"), "status", "'ok' only without format errors"),
    ("episodes", setting(0, actions=[""], num_actions=0), "actions", "malformed or cut short"),
    ("episodes", setting(1, env="frozen_lake", env_seed=7, member=1), "env", "same in all rows of a cell and env_seed"),
    ("selection", setting(1, num_valid=0), "kept", "only where num_valid is not 0"),
    ("selection", setting(0, num_valid=5), "num_valid", "at most num_trajectories"),
    ("selection", setting(0, success_rate=1.5), "success_rate", "between 0 and 1"),
    ("selection", setting(0, return_mean=9.0), "return_mean", "between return_min and return_max"),
    ("selection", setting(0, rank=0), "rank", "permutation"),
    ("selection", setting(0, rank=2), "rank", "permutation"),
    ("selection", setting(0, group_id="group-00000001"), "group_id", "identify a row"),
    ("curriculum", setting(2, is_open=True), "is_open", "is true exactly where share is above 0"),
    ("curriculum", setting(0, success=0.5), "success", "is the mean of recent"),
    ("curriculum", setting(2, success=0.5), "success", "is the mean of recent"),
    ("curriculum", setting(1, num_groups=0), "num_groups", "at least the number of recent groups"),
    ("curriculum", setting(1, share=0.5), "share", "sums to 1"),
    ("curriculum", setting(1, base_share=0.5), "base_share", "sums to 1"),
    ("curriculum", setting(1, place=0), "place", "permutation"),
    ("curriculum", setting(1, place=3), "place", "permutation"),
    ("curriculum", setting(1, level="size-3"), "level", "identify a row"),
    ("curriculum", setting(0, recent=[1.0, 1.75]), "recent", "holds shares, 0 to 1"),
    ("samples", setting(0, loss_share=0.0), "loss_share", "sums to 1"),
    ("metrics", setting(0, name="update/entropy"), "iteration", "identify a row"),
    ("credits", setting(1, returns=[1.0, 1.0, 1.0]), "num_continuations", "number of returns"),
    ("credits", setting(1, value=0.5), "value", "mean of returns"),
    ("credits", setting(0, value_se=0.5), "value_se", "standard error of the mean"),
    ("credits", setting(0, advantage=0.5), "advantage", "reward + value_after - value"),
    ("credits", setting(0, solver_after=None), "solver_after", "null exactly where"),
    ("credits", setting(0, solver_after=0.5), "solver_after", "of the next turn"),
    ("credits", setting(1, value_after=0.5, advantage=0.5), "value_after", "of the next turn, and 0 after the last"),
    ("credits", setting(2, num_tokens=1), "num_tokens", "same in all rows of a state"),
    ("credits", setting(2, success=0.25), "success", "same in all rows of a state"),
    ("credits", setting(2, solver_before=0.5), "solver_before", "same in all rows of a state"),
    ("credits", setting(2, num_continuations=2), "num_continuations", "same in all rows of a state"),
    ("credits", setting(2, value=0.75), "value", "same in all rows of a state"),
    ("credits", setting(1, group_id="elsewhere"), "group_id", "same in all rows of a trajectory_id"),
    ("credits", setting(1, turn=2), "turn", "without gaps"),
    ("credit_estimates", setting(2, group_id="elsewhere"), "group_id", "same in all rows of a trajectory_id"),
    ("credit_estimates", setting(1, quantity="value"), "quantity", "same in all rows of a estimator"),
    ("episodes", setting(1, responses=["up"]), "responses", "as many items as observations"),
    ("episodes", setting(1, actions=["Up"]), "actions", "as many items as observations"),
    ("episodes", setting(1, num_turns=3), "num_turns", "number of observations"),
    ("episodes", setting(1, num_format_errors=3), "num_format_errors", "at most num_turns"),
    ("episodes", setting(1, member=1), "member", "without gaps"),
    ("episodes", setting(1, env_seed=7, member=1), "initial_state_digest", "same in all rows"),
    ("episodes", setting(1, temperature=1.0), "temperature", "same in all rows of a cell"),
    ("episodes", lambda rows: rows.append({**rows[0], "member": 1}), "member", "same maximum"),
]  # fmt: skip

VALUE_FAULTS = [
    (kind, setting(0, **{name: value}), name, text)
    for kind, names, value, text in (
        ("turns", "trajectory_id group_id env", "", "is not empty"),
        ("turns", "env_seed dynamics_seed sampling_seed member turn forfeited_actions", -1, "is at least 0"),
        ("turns", "actions_left", -1, "is at least 0"),
        ("turns", "status finish_reason origin", "luck", "is one of"),
        ("turns", "member", 1, "same in all rows of a trajectory_id"),
        ("turns", "env", "elsewhere", "same in all rows of a group_id"),
        ("turns", "initial_state_digest", "f" * 16, "same in all rows of a group_id"),
        ("siblings", "trajectory_id", "", "is not empty"),
        ("siblings", "turn candidate", -1, "is at least 0"),
        ("siblings", "response_ids", [-1, 8, 1], "token ids from 0"),
        ("siblings", "response_ids", [], "is not empty"),
        ("siblings", "behaviour_logprobs", [-0.5], "as many items as response_ids"),
        ("siblings", "behaviour_logprobs", [-0.5, -0.25, 0.1], "numbers from -104 to 0"),
        ("siblings", "executed_actions", [""], "no empty text"),
        ("siblings", "score", float("nan"), "is finite"),
        ("siblings", "parent", 0, "is -1 on the first turn"),
        ("siblings", "parent", -2, "is at least -1"),
        ("siblings", "chosen", True, "for one candidate of a turn"),
        ("rewards", "trajectory_id group_id", "", "is not empty"),
        ("rewards", "turn", -1, "is at least 0"),
        ("rewards", "total trajectory_return normalised_return", float("inf"), "is finite"),
        ("rewards", "group_id", "elsewhere", "same in all rows of a trajectory_id"),
        ("rewards", "trajectory_return normalised_return", 1.0, "same in all rows of a trajectory_id"),
        ("selection", "group_id env strategy reason", "", "is not empty"),
        ("curriculum", "level", "", "is not empty"),
        ("curriculum", "place num_groups", -1, "is at least 0"),
        ("curriculum", "base_share share success", 1.5, "between 0 and 1"),
        ("curriculum", "owed", float("inf"), "is finite"),
        ("selection", "env_seed num_valid return_std", -1, "is at least 0"),
        ("selection", "num_trajectories", 0, "is at least 1"),
        ("selection", "metric", "luck", "is one of"),
        ("selection", "score return_std return_mean return_max return_min", float("inf"), "is finite"),
        ("selection", "strategy", "other", "same in all rows"),
        ("samples", "trajectory_id group_id", "", "is not empty"),
        ("samples", "num_tokens old_behaviour_gap", -1, "is at least 0"),
        ("samples", "clip_fraction loss_share", -0.5, "between 0 and 1"),
        ("samples", "trajectory_return advantage mean_ratio", float("inf"), "is finite"),
        ("samples", "kl_behaviour kl_reference old_behaviour_gap", float("nan"), "is finite"),
        ("trained_tokens", "trajectory_id group_id", "", "is not empty"),
        ("trained_tokens", "turn", -1, "is at least 0"),
        ("trained_tokens", "advantages ratios clip_fractions", [float("inf")] * 2, "finite numbers"),
        ("trained_tokens", "entropies", [float("nan")], "finite numbers"),
        ("trained_tokens", "advantages ratios clip_fractions", [0.0], "as many items as has_loss"),
        ("teacher_logprobs", "trajectory_id group_id", "", "is not empty"),
        ("teacher_logprobs", "turn num_hint_tokens", -1, "is at least 0"),
        ("teacher_logprobs", "logprobs", [float("-inf"), 0.0], "finite numbers"),
        ("teacher_logprobs", "is_mode", [True], "as many items as logprobs"),
        ("teacher_top_tokens", "trajectory_id group_id", "", "is not empty"),
        ("teacher_top_tokens", "turn", -1, "is at least 0"),
        ("teacher_top_tokens", "logprobs", [float("nan")] * 4, "finite numbers"),
        ("teacher_top_tokens", "logprobs", [-0.5], "as many items as token_ids"),
        ("credits", "trajectory_id group_id", "", "is not empty"),
        ("credits", "turn num_tokens value_se advantage_se", -1, "is at least 0"),
        ("credits", "state", "f" * 32, "16 hexadecimal digits"),
        ("credits", "num_continuations", 1, "is at least 2"),
        ("credits", "returns", [float("nan")] * 4, "finite numbers"),
        ("credits", "success", 1.5, "between 0 and 1"),
        ("credits", "value_se advantage_se", float("nan"), "is finite"),
        ("credits", "value value_after reward advantage solver_before solver_after", float("inf"), "is finite"),
        ("credit_estimates", "estimator trajectory_id group_id", "", "is not empty"),
        ("credit_estimates", "turn", -1, "is at least 0"),
        ("credit_estimates", "quantity", "reward", "is one of advantage, value"),
        ("credit_estimates", "estimate", float("nan"), "is finite"),
        ("metrics", "stage name", "", "is not empty"),
        ("metrics", "iteration", -1, "is at least 0"),
        ("metrics", "value", float("inf"), "is finite"),
        ("episodes", "cell env", "", "is not empty"),
        (
            "episodes",
            "env_seed member temperature num_actions num_response_tokens num_format_errors",
            -1,
            "is at least 0",
        ),
        ("episodes", "num_turns", 0, "is at least 1"),
        ("images", "digest", "f" * 16, "32 hexadecimal digits"),
        ("images", "height width", 0, "is at least 1"),
        ("images", "height width", 9, "is that of the PNG file"),
        ("images", "png", "", "begins as a PNG file does"),
        ("turn_images", "trajectory_id", "", "is not empty"),
        ("turn_images", "turn position", -1, "is at least 0"),
        ("turn_images", "num_tokens", -1, "is at least 0"),
        ("turn_images", "num_tokens", 5, "same in all rows of a image"),
        ("turn_images", "image", "f" * 16, "32 hexadecimal digits"),
        ("episodes", "temperature episode_return", float("inf"), "is finite"),
        ("episodes", "status", "luck", "is one of"),
        ("episodes", "initial_state_digest", "0", "is 16 hexadecimal digits"),
    )
    for name in names.split()
]

OF_TURNS = [*(("turns", *fault) for fault in TURN_FAULTS), *OTHER_FAULTS, *VALUE_FAULTS]
FAULTS = [*OF_TURNS, *(("episode_turns", *fault) for kind, *fault in OF_TURNS if kind == "turns")]


def test_every_check_and_rule_has_fault() -> None:
    """Nulls have tests of their own."""
    demands = {(kind, column, check.error) for kind in CHECKS for column, of in CHECKS[kind].items() for check in of}
    for kind, dataset in DATASETS.items():
        demands.add((kind, dataset.key[0], "identify a row: no two rows have the same"))
        demands |= {(kind, rule.columns[0], rule.text) for rule in (*ROW_RULES[kind], *ACROSS_RULES[kind])}
    named = [
        {demand for demand in demands if demand[:2] == (kind, column) and text in demand[2]}
        for kind, _, column, text in FAULTS
    ]
    assert {len(matches) for matches in named} == {1}
    assert set.union(*named) == demands


@pytest.mark.ci
@pytest.mark.parametrize(("kind", "change", "column", "text"), FAULTS)
def test_rule_is_named_when_broken(kind: str, change: Callable[[Rows], object], column: str, text: str) -> None:
    broken = broken_rules(rebuilt(example(kind), change), kind)
    assert [rule for name, rule in broken if name == column and text in rule], broken


@pytest.mark.ci
@pytest.mark.parametrize("kind", DATASETS)
def test_null_is_found_where_forbidden(kind: str) -> None:
    for column in DATASETS[kind].columns:
        table = rebuilt(example(kind), setting(0, **{column.name: None}))
        if not column.nullable:
            assert (column.name, "is neither null nor NaN") in broken_rules(table, kind)


@pytest.mark.parametrize("kind", DATASETS)
def test_null_inside_a_list_is_found(kind: str) -> None:
    table = example(kind)
    for column in DATASETS[kind].columns:
        if pa.types.is_list(column.type):
            with_null = rebuilt(table, lambda rows, name=column.name: rows[0][name].__setitem__(0, None))
            assert (column.name, "holds no nulls inside its lists") in broken_rules(with_null, kind)


@pytest.mark.parametrize("kind", DATASETS)
def test_wrong_columns_are_named(kind: str) -> None:
    table, first = example(kind), DATASETS[kind].columns[0]
    assert broken_rules(table.drop_columns([first.name]), kind) == {(first.name, f"is a column of type {first.type}")}
    extra = table.append_column("extra", pa.nulls(table.num_rows))
    assert broken_rules(extra, kind) == {("extra", "is not a column of this dataset")}
    assert "is in the order" in next(iter(broken_rules(table.select(table.schema.names[::-1]), kind)))[1]
    retyped = table.set_column(0, first.name, pa.array(np.zeros(table.num_rows, np.int8)))
    assert broken_rules(retyped, kind) == {(first.name, f"is of type {first.type}")}


@pytest.mark.parametrize(
    ("answer", "actions"),
    [
        *[("up||LEFT", ["Up", "Left"]), ("straße", ["STRASSE"]), ("strasse || ", ["Straße", ""]), ("İ", ["i̇"])],
        *[("click[a\n  b]", ["click[a b]"]), ("click[a\x1cb]", ["click[a b]"]), ("no \t name", ["no \t name"])],
        ('{"name":"go", "arguments":{}}', ['{"arguments": {}, "name": "go"}']),
    ],
)
def test_action_case_and_whitespace_may_differ(answer: str, actions: list[str]) -> None:
    response = {"answer": answer, "response": f"<answer>{answer}</answer>", "think": None, "parsed_actions": actions}
    done = {"executed_actions": [], "action_rewards": [], "action_effective": [], "actions_left": 2}
    how = {"format_ok": False, "status": "format_error", "forfeited_actions": 2}
    validate(rebuilt(example("turns"), setting(TURNS_EACH - 1, **response, **done, **how)), "turns")


@pytest.mark.parametrize("forfeited", [0, 2])
def test_malformed_responses_may_forfeit_actions(forfeited: int) -> None:
    malformed = {"parsed_actions": [], "answer": None, "executed_actions": [], "action_rewards": []}
    malformed |= {"action_effective": [], "format_ok": False, "status": "format_error"}

    def change(rows: Rows) -> None:
        rows[1].update(malformed, forfeited_actions=forfeited)
        for row in rows[2:TURNS_EACH]:
            row["actions_left"] += 2 - forfeited

    validate(rebuilt(example("turns"), change), "turns")


def test_loss_share_may_be_zero_throughout() -> None:
    validate(rebuilt(example("samples"), setting_where(lambda r: True, loss_share=0.0)), "samples")


def test_rules_name_existing_columns() -> None:
    for kind, dataset in DATASETS.items():
        assert set(CHECKS[kind]) <= set(dataset.schema.names)
        for rule in (*ROW_RULES[kind], *ACROSS_RULES[kind]):
            assert set(rule.columns) <= set(dataset.schema.names)
            assert set(rule.within) <= set(dataset.schema.names)


@pytest.mark.parametrize(
    ("kind", "column"),
    [(kind, column.name) for kind in DATASETS for column in DATASETS[kind].columns if pa.types.is_list(column.type)],
)
def test_lists_beginning_with_null_are_named(kind: str, column: str) -> None:
    def with_nulls(rows: Rows) -> None:
        for number, row in enumerate(rows):
            row[column] = [None, *(row[column] if number else [])]

    assert (column, "holds no nulls inside its lists") in broken_rules(rebuilt(example(kind), with_nulls), kind)
