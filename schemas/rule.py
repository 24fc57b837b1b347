"""Rules: constraints that every row of a dataset must satisfy, as a sentence and a polars expression; and common rules.

There are two kinds. A *row rule* depends on one row, and can be checked batch by batch. An *across rule* compares the
rows of a trajectory, a group or the whole dataset, and is checked once, on the columns that it names, over all rows. No
rule depends on the order of rows.
"""

from dataclasses import dataclass

import polars as pl
from polars import col

_TOLERANCE = 1e-9
"""Relative tolerance of float64 sums, whose order of addition is unspecified."""


@dataclass(frozen=True)
class Rule:
    """A constraint that every row must satisfy.

    Attributes:
        columns: Columns concerned; messages name the first.
        text: The rule as a sentence.
        holds: Boolean expression; null counts as satisfied (null values have their own rule). Without `within`, one
            value per row or one for all rows; with `within`, one value for the rows that agree in those columns.
        within: Columns by which rows are grouped.
    """

    columns: tuple[str, ...]
    text: str
    holds: pl.Expr
    within: tuple[str, ...] = ()

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """Return one Boolean per row, never null."""
        holds = self.holds.over(*self.within) if self.within else self.holds
        return frame.with_columns(_holds=holds.fill_null(True)).get_column("_holds")


def each_item(name: str, holds: pl.Expr) -> pl.Expr:
    """Return whether all items of a list satisfy an expression. True for an empty list."""
    return col(name).list.eval(holds).list.all()


def one_of(name: str, allowed: tuple[str, ...]) -> Rule:
    """Require one of these texts."""
    return Rule((name,), f"is one of {', '.join(allowed)}", col(name).is_in(allowed))


def at_least(name: str, low: float) -> Rule:
    """Require numbers of at least `low`."""
    return Rule((name,), f"is at least {low:g}", col(name) >= low)


def share(name: str) -> Rule:
    """Require numbers from 0 to 1, up to rounding."""
    return Rule((name,), "lies between 0 and 1", col(name).is_between(-_TOLERANCE, 1 + _TOLERANCE))


def finite(*names: str) -> list[Rule]:
    """Require numbers that are neither NaN nor infinite."""
    return [Rule((name,), "is finite", col(name).is_finite()) for name in names]


def not_empty(*names: str) -> list[Rule]:
    """Require texts that are not empty."""
    return [Rule((name,), "is not empty", col(name).str.len_bytes() > 0) for name in names]


def aligned(name: str, *others: str) -> list[Rule]:
    """Require the lists of the other columns to be as long as those of `name`."""
    lengths = col(name).list.len()
    return [Rule((other, name), f"has as many items as {name}", col(other).list.len() == lengths) for other in others]


def json_object(name: str) -> Rule:
    """Require JSON objects; each distinct text is parsed once, however many rows contain it."""
    texts = col(name).unique(maintain_order=True)  # the two uses below must agree
    broken = texts.filter(~texts.str.json_path_match("$").str.starts_with("{").fill_null(False))
    return Rule((name,), "is a JSON object", ~col(name).is_in(broken.implode()))


def contained(name: str, within: str) -> Rule:
    """Require the text of the column, if not null, to be a substring of another column's."""
    return Rule((name, within), f"is contained in {within}", col(within).str.contains(col(name), literal=True))


def says_action(response: pl.Expr, action: pl.Expr) -> pl.Expr:
    """Whether a response contains an action of one word, ignoring case.

    True for other actions, whose canonical spelling may differ (blanks, JSON), and for other letters than ASCII, whose
    case is ambiguous.
    """
    is_ascii = pl.all_horizontal(text.str.len_bytes() == text.str.len_chars() for text in (response, action))
    is_said = response.str.to_lowercase().str.contains(action.str.to_lowercase(), literal=True)
    return ~is_ascii | action.str.contains(r"[\s{]") | is_said


def digest(name: str) -> Rule:
    """Require the digest of a state."""
    return Rule((name,), "is 16 hexadecimal digits", col(name).str.contains("^[0-9a-f]{16}$"))


def close(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Equality up to rounding; values that are not finite count as equal, as they have their own rule."""
    return ((left - right).abs() <= _TOLERANCE * pl.max_horizontal(left.abs(), right.abs(), pl.lit(1.0))) | ~(
        left.is_finite() & right.is_finite()
    )


def is_whole(number: pl.Expr) -> pl.Expr:
    """Whether a number is whole, up to rounding."""
    return close(number, number.round())


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
    """Require the numbers 0 .. n-1, in any order; duplicates are left to the key's rule."""
    complete = (col(name).min() == 0) & (col(name).max() + 1 == pl.len())
    return Rule((name, *within), f"counts 0, 1, 2, ... without gaps in every {' and '.join(within)}", complete, within)
