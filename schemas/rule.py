"""Rules: constraints on several columns or rows of a dataset, as a sentence and a polars expression; and common rules.

A *row rule* depends on one row, and can be checked batch by batch. An *across rule* compares the rows of a trajectory,
a group or the whole dataset, and is checked once, on the columns that it names, over all rows. No rule depends on the
order of rows. What concerns one column of one row is a check of that column (`schemas.checks`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from pandera.polars import Check
from polars import col

_TOLERANCE = 1e-9
"""Relative tolerance of float64 sums, whose order of addition is unspecified."""


@dataclass(frozen=True)
class Rule:
    """A constraint that every row must satisfy.

    Attributes:
        columns: Columns concerned; messages name the first.
        text: The rule as a sentence.
        holds: Boolean expression; null counts as satisfied (null values have their own check). Without `within`, one
            value per row or one for all rows; with `within`, one value for the rows that agree in those columns.
        within: Columns by which rows are grouped.
    """

    columns: tuple[str, ...]
    text: str
    holds: pl.Expr
    within: tuple[str, ...] = ()

    @property
    def verdict(self) -> pl.Expr:
        """Whether the rule holds, for each row, or once for all rows."""
        return self.holds.over(*self.within) if self.within else self.holds

    @property
    def check(self) -> Check:
        """The rule as a check of a table, with one verdict per row."""
        return Check(lambda data: data.lazyframe.with_columns(_holds=self.verdict).select("_holds"), error=self.text)


def all_hold(rules: Sequence[Rule]) -> Check:
    """Return rules as a single check of a table, decided in one call of polars, whereas each check of its own waits for
    a thread."""
    verdicts = [rule.verdict.alias(str(number)) for number, rule in enumerate(rules)]
    return Check(lambda data: data.lazyframe.select(verdicts), error="satisfies the rules of its dataset")


def aligned(name: str, *others: str) -> list[Rule]:
    """Require the lists of the other columns to be as long as those of `name`."""
    lengths = col(name).list.len()
    return [Rule((other, name), f"has as many items as {name}", col(other).list.len() == lengths) for other in others]


def contained(name: str, within: str) -> Rule:
    """Require the text of the column, if not null, to be a substring of another column's."""
    return Rule((name, within), f"is contained in {within}", col(within).str.contains(col(name), literal=True))


def close(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Equality up to rounding; values that are not finite count as equal, as they have their own check."""
    return ((left - right).abs() <= _TOLERANCE * pl.max_horizontal(left.abs(), right.abs(), pl.lit(1.0))) | ~(
        left.is_finite() & right.is_finite()
    )


def same(name: str, *within: str) -> Rule:
    """Require the column to be constant over the rows that agree in `within`."""
    values = col(name).to_physical()  # for a categorical text its number, which suffices for equality
    return Rule(
        (name, *within), f"is the same in all rows of a {' and '.join(within)}", values.min() == values.max(), within
    )


def constant(*names: str) -> list[Rule]:
    """Require the columns to have the same value in all rows."""
    return [Rule((n,), "is the same in all rows", col(n).to_physical().n_unique() <= 1) for n in names]


def counted(name: str, *within: str) -> Rule:
    """Require the numbers 0 .. n-1, in any order; duplicates are left to the key's check."""
    complete = (col(name).min() == 0) & (col(name).max() + 1 == pl.len())
    return Rule((name, *within), f"counts 0, 1, 2, ... without gaps in every {' and '.join(within)}", complete, within)
