"""Reports of contract violations: short messages, row numbers, and failure cases as plain text."""

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.schemas.datasets import DATASETS
from starpo.schemas.validate import ContractViolation, Validator, validate
from tests.examples import example, example_turns
from tests.schemas.changes import Rows, rebuilt, setting, setting_where


def test_message_names_rule_rows_and_ids() -> None:
    table = rebuilt(example("turns"), setting_where(lambda r: r["turn"] == 2, prompt_ids=[-1]))
    with pytest.raises(ContractViolation) as caught:
        validate(table, "turns")
    lines = caught.value.message.splitlines()
    assert lines == [
        "dataset 'turns' (version 2, 40 rows) breaks 1 of its rules:",
        "- column 'prompt_ids' holds token ids from 0 to 1048575: violated in 8 rows",
        "    row 2: trajectory_id='group-00000000/0000', turn=2: prompt_ids=[-1]",
        "    row 7: trajectory_id='group-00000000/0001', turn=2: prompt_ids=[-1]",
        "    row 12: trajectory_id='group-00000000/0002', turn=2: prompt_ids=[-1]",
        "Fix the stage that makes 'turns', or, if the data were edited by hand, restore them.",
    ]
    assert caught.value.kind == "turns"
    assert caught.value.failure_cases["row"].to_pylist() == [2, 7, 12, 17, 22, 27, 32, 37]


@pytest.mark.ci
def test_message_length_is_limited() -> None:
    table = example_turns(100)
    wrong = {name: pa.nulls(table.num_rows, table.schema.field(name).type) for name in table.schema.names}
    with pytest.raises(ContractViolation) as caught:
        validate(pa.table(wrong), "turns")
    assert len(caught.value.message.splitlines()) < 30
    assert max(map(len, caught.value.message.splitlines())) < 600


@pytest.mark.ci
@pytest.mark.parametrize("wrong", [{}, {"action_cost": 1.0, "env_seed": 99}])
@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(0, 60), max_size=6), order=st.permutations(range(60)))
def test_row_order_does_not_matter(wrong: dict[str, Any], cuts: list[int], order: list[int]) -> None:
    """The wrong values break a rule on rows and one across the rows of a group."""
    table = rebuilt(example_turns(3), setting(2, **wrong))
    assert reported(table.take(order), sorted({0, *cuts, 60})) == reported(table, [0, 60])


def reported(table: pa.Table, bounds: list[int]) -> list[tuple[str, str]]:
    """Return rule and id of every failure case of a table in these batches; none if it is valid."""
    validator = Validator("turns")
    for start, stop in itertools.pairwise(bounds):
        validator.check(table.slice(start, stop - start))
    try:
        validator.finish()
    except ContractViolation as error:
        return sorted((case["rule"], case["id"]) for case in error.failure_cases.to_pylist())
    return []


def test_rows_are_numbered_through_all_batches() -> None:
    table = example_turns(2)
    validator = Validator("turns")
    validator.check(table)
    validator.check(table.slice(5, 1))
    with pytest.raises(ContractViolation) as caught:
        validator.finish()
    cases = [case for case in caught.value.failure_cases.to_pylist() if "identify" in case["rule"]]
    assert [case["row"] for case in cases] == [5, 40]  # row 5, and its copy after the 40 rows of the first batch


def test_no_table_makes_validation_itself_fail() -> None:
    """Any invalid table raises a ContractViolation."""
    for kind in DATASETS:
        schema = DATASETS[kind].schema
        nulls = pa.table({f.name: pa.nulls(3, f.type) for f in schema})
        for table in (nulls, pa.table({"x": [1]}), nulls.select([])):
            with pytest.raises(ContractViolation):
                validate(table, kind)


def test_failure_cases_are_the_wrong_rows() -> None:
    def change(rows: Rows) -> None:
        for number, row in enumerate(rows):
            row["info"] = f'{{"row": {number}}}' if number % 2 else f"{number:02}" * 5_000

    with pytest.raises(ContractViolation) as caught:
        validate(rebuilt(example("turns"), change), "turns")
    cases = [(case["row"], case["found"]) for case in caught.value.failure_cases.to_pylist()]
    assert cases == [(number, f"info='{f'{number:02}' * 58}...") for number in range(0, 40, 2)]
