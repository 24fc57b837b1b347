"""Estimators beside the true credit of turns, as the terminal, a CSV file and JSON show them."""

import math

import pytest

from starpo.flows.console.credit_table import agreement_rows, document, numbers, part_rows, remarks
from starpo.ragen.learning.metrics.credit_comparison import HALVES, RANDOM, ComparedCredit, compare_credit
from tests.ragen.learning.metrics.credit_tables import CREDITS, PLAYED, TURNS, estimates

METHODS = {"truth": ["run", "a", "b", "c", "d", "e"], "critic": []}


@pytest.fixture(scope="module")
def compared() -> ComparedCredit:
    comparison = compare_credit(
        CREDITS,
        estimates(
            truth=lambda row: row["advantage"],
            first=lambda row: 1.0 if row["turn"] == 0 else None,
            critic=lambda row: row["value"],
        ),
        PLAYED,
    )
    return ComparedCredit("mine", 3, comparison, METHODS, {"ppo": "it needs a critic"}, "key")


def test_rows_are_best_first(compared) -> None:
    rows = agreement_rows(compared)
    assert [row["estimator"] for row in rows] == ["truth", "first", RANDOM, HALVES]
    assert rows[0]["over all"] == "1.00 [1.00 1.00]"
    assert rows[0]["used by"] == "run, a, b, c and 2 more"
    assert rows[1]["within"] == "-"


def test_parts_begin_with_truth(compared) -> None:
    truth, same, *_ = part_rows(compared)
    assert truth["estimator"] == "truth"
    assert {**same, "estimator": ""} == {**truth, "estimator": ""}
    assert sum(float(share) for name, share in truth.items() if name != "estimator") == pytest.approx(1, abs=0.03)


def test_numbers_hold_every_part(compared) -> None:
    rows = numbers(compared)
    assert [row["turns"] for row in rows if row["estimator"] == "first"][:1] == ["all"]
    assert {"first", "middle", "last", "decisive"} < {row["turns"] for row in rows if row["estimator"] == "truth"}
    whole = next(row for row in rows if (row["estimator"], row["turns"]) == ("truth", "all"))
    assert (whole["run"], whole["iteration"], whole["methods"]) == ("mine", 3, "run a b c d e")
    assert (whole["overall"], whole["overall_low"]) == (pytest.approx(1), pytest.approx(1))
    assert whole["square_share"] is None
    assert {len(row) for row in rows} == {len(whole)}
    of_turns = [row["num_turns"] for row in rows if row["turns"] in ("first", "middle", "last")]
    assert all(number % 6 == 0 for number in of_turns), TURNS


def test_remarks_name_noise_and_critic(compared) -> None:
    text = "\n".join(remarks(compared))
    share = compared.comparison.noise_share
    assert f"{100 * share:.0f}% of the true advantages' mean square is noise: a perfect estimator would reach" in text
    assert "critic: slope 1.00" in text
    assert "fewer than 8 groups" in text
    assert "left out: ppo: it needs a critic" in text


def test_document_is_finite_json(compared) -> None:
    printed = document(compared)
    assert printed.artifact == "key"
    assert printed.methods == METHODS
    assert printed.num_turns == compared.comparison.num_turns
    assert printed.estimators[0].estimator == "truth"
    assert math.isfinite(printed.noise_share)
    assert type(printed).model_validate_json(printed.model_dump_json()) == printed
