"""A rule: something that every row of a dataset must obey, as a sentence and as a polars expression; and common ones.

Two sorts: a *row rule* looks at one row, and can be checked batch by batch; an *across rule* compares the rows of a
trajectory, a group or the whole dataset, and is checked once, on the few columns that it names, of all rows. No rule
relies on the order of rows.
"""

from dataclasses import dataclass

import polars as pl
from polars import col

_TOLERANCE = 1e-9
"""Relative tolerance of sums of float64: the order of addition is free."""


@dataclass(frozen=True)
class Rule:
    """Something that every row must obey.

    Attributes:
        columns: Columns concerned; the first is the one that a message names.
        text: The rule as a sentence, in words.
        holds: Boolean; null counts as obeyed (null values have a rule of their own). Without `within` one value a row,
            or one for all rows; with it one value for the rows that agree in those columns.
        within: Columns whose equal values make rows belong together.
    """

    columns: tuple[str, ...]
    text: str
    holds: pl.Expr
    within: tuple[str, ...] = ()

    def evaluate(self, frame: pl.DataFrame) -> pl.Series:
        """One Boolean a row, never null."""
        holds = self.holds.over(*self.within) if self.within else self.holds
        return frame.with_columns(_holds=holds.fill_null(True)).get_column("_holds")


def each_item(name: str, holds: pl.Expr) -> pl.Expr:
    """Does every item of a list obey? True for an empty list."""
    return col(name).list.eval(holds).list.all()


def one_of(name: str, allowed: tuple[str, ...]) -> Rule:
    """The column holds one of these texts."""
    return Rule((name,), f"is one of {', '.join(allowed)}", col(name).is_in(allowed))


def at_least(name: str, low: float) -> Rule:
    """The column holds no smaller number."""
    return Rule((name,), f"is at least {low:g}", col(name) >= low)


def share(name: str) -> Rule:
    """The column holds a number from 0 to 1, but for rounding."""
    return Rule((name,), "lies between 0 and 1", col(name).is_between(-_TOLERANCE, 1 + _TOLERANCE))


def finite(*names: str) -> list[Rule]:
    """The columns hold neither NaN nor infinities."""
    return [Rule((name,), "is finite", col(name).is_finite()) for name in names]


def not_empty(*names: str) -> list[Rule]:
    """The columns hold no empty text."""
    return [Rule((name,), "is not empty", col(name).str.len_bytes() > 0) for name in names]


def aligned(name: str, *others: str) -> list[Rule]:
    """The lists of the other columns are as long as those of `name`."""
    lengths = col(name).list.len()
    return [Rule((other, name), f"has as many items as {name}", col(other).list.len() == lengths) for other in others]


def json_object(name: str) -> Rule:
    """The column holds JSON objects; each text is read once, however many rows have it."""
    texts = col(name).unique()
    broken = texts.filter(~texts.str.json_path_match("$").str.starts_with("{").fill_null(False))
    return Rule((name,), "is a JSON object", ~col(name).is_in(broken.implode()))


def contained(name: str, within: str) -> Rule:
    """The text of the column, where there is one, stands in that of another."""
    return Rule((name, within), f"stands in {within}", col(within).str.contains(col(name), literal=True))


def digest(name: str) -> Rule:
    """The column holds the digest of a state."""
    return Rule((name,), "is 16 hexadecimal digits", col(name).str.contains("^[0-9a-f]{16}$"))


def close(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Equal but for rounding; sums that are not finite have a rule of their own."""
    return ((left - right).abs() <= _TOLERANCE * pl.max_horizontal(left.abs(), right.abs(), pl.lit(1.0))) | ~(
        left.is_finite() & right.is_finite()
    )


def is_whole(number: pl.Expr) -> pl.Expr:
    """A whole number, but for rounding."""
    return close(number, number.round())


def same(name: str, *within: str) -> Rule:
    """The column is constant among the rows that agree in `within`."""
    values = col(name).to_physical()  # of a text its number, which is all that equality needs
    return Rule(
        (name, *within), f"is the same in all rows of a {' and '.join(within)}", values.min() == values.max(), within
    )


def constant(*names: str) -> list[Rule]:
    """The columns hold one value in all rows."""
    return [Rule((n,), "is the same in all rows", col(n).to_physical().n_unique() <= 1) for n in names]


def counted(name: str, *within: str) -> Rule:
    """Each of 0 .. n-1 occurs once, whatever the order; that none occurs twice is left to the key's rule."""
    complete = (col(name).min() == 0) & (col(name).max() + 1 == pl.len())
    return Rule((name, *within), f"counts 0, 1, 2, ... without gaps in every {' and '.join(within)}", complete, within)
