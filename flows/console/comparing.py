"""Runs beside each other: success on their panels, and the difference from the first, as rows of text and of numbers.

records --compared--> Compared --> rows for a terminal or a file
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starpo.ragen.agents.evaluation.comparison import COUNTED, counts_by_prompt
from starpo.ragen.evidence.run_facts import evaluation_curve, run_facts
from starpo.ragen.evidence.view.last_evaluations import LastEvaluation, compare_last
from starpo.ragen.store import Store
from starpo.ragen.store.records.run import RunRecord
from starpo.ragen.studies.scores import Comparison, corrected
from starpo.ragen.studies.sweep_tables import difference_numbers, explain_difference, p_text, pair_cells


@dataclass(frozen=True)
class ComparedRun:
    """A run beside the first one.

    Attributes:
        facts: Identity, progress and success (`listing.run_facts`).
        curve: Its evaluations: iteration, success, low, high.
        difference: Its last success minus that of the first run; None for the first run, or if they are not compared.
        words: What that comes to, or why they are not compared; empty for the first run.
    """

    facts: Mapping[str, Any]
    curve: Sequence[Mapping[str, float]]
    difference: Comparison | None
    words: str

    @property
    def best(self) -> float | None:
        """Highest success of its evaluations; None without one."""
        return max((point["success"] for point in self.curve), default=None)

    @property
    def numbers(self) -> dict[str, Any]:
        """One value for each number of a table; None where there is none."""
        first, last = (self.curve[0], self.curve[-1]) if self.curve else ({}, {})
        return {
            **{name: self.facts[name] for name in ("run", "state", "updates")},
            **{f"first{end}": first.get(name) for end, name in _ENDS.items()},
            "best": self.best,
            **{f"last{end}": last.get(name) for end, name in _ENDS.items()},
            **difference_numbers("difference", self.difference),
        }


_ENDS = {"": "success", "_low": "low", "_high": "high"}


def compared(store: Store, records: Sequence[RunRecord]) -> list[ComparedRun]:
    """Compare runs with the first of them; p-values are corrected for all these differences.

    Raises:
        StoreError: If an artifact is missing or damaged.
    """
    base, *others = [_last_evaluation(store, record) for record in records]
    to_first = {run.name: compare_last(last, base) for run, last in zip(records[1:], others, strict=True)}
    comparisons = corrected({name: difference for name, (difference, _) in to_first.items() if difference})
    return [
        ComparedRun(
            run_facts(store, run),
            evaluation_curve(store, run),
            comparisons.get(run.name),
            to_first[run.name][1] if run.name in to_first else "",
        )
        for run in records
    ]


def success_rows(runs: Sequence[ComparedRun]) -> list[dict[str, str]]:
    """Return a row of text for each run: first, best and last success."""
    rows = []
    for one in runs:
        numbers = one.numbers
        row = {
            "run": str(numbers["run"]),
            "state": str(numbers["state"]),
            "updates": str(numbers["updates"]),
            "first": _interval(numbers, "first"),
            "best": "" if one.best is None else f"{one.best:.3f}",
            "last": _interval(numbers, "last"),
        }
        rows.append(row)
    return rows


def difference_rows(runs: Sequence[ComparedRun]) -> list[dict[str, str]]:
    """Return a row of text for each run but the first: its difference from the first."""
    return [{"run": str(one.facts["run"]), **_difference(one.difference, one.words)} for one in runs[1:]]


def remarks(runs: Sequence[ComparedRun]) -> list[str]:
    """Explain what the differences are, and what they do not say."""
    differences = [one.difference for one in runs if one.difference]
    sentences = []
    if any(one.num_pairs for one in differences):
        sentences.append(explain_difference("these runs"))
    if any(not one.num_pairs for one in differences):
        sentences.append(
            "Unpaired: evaluated on other initial states, so the interval is wider; p: z test of two independent "
            "rates, corrected after Holm for these runs."
        )
    if differences:
        sentences.append(
            "Intervals are over initial states, for these runs alone; `starpo ablate` compares settings over seeds."
        )
    return sentences


def table_rows(runs: Sequence[ComparedRun]) -> list[dict[str, str]]:
    """Return a row of text for each run: success and, if there are several, the difference from the first."""
    return [
        row | (_difference(one.difference) if len(runs) > 1 else {})
        for row, one in zip(success_rows(runs), runs, strict=True)
    ]


def _last_evaluation(store: Store, run: RunRecord) -> LastEvaluation:
    """Read a run's last evaluation on the panel of its environment."""
    keys = [stages.get(f"evaluate:{run.environment}") for stages in store.runs.iterations(run.name).values()]
    last = next((of["episodes"] for of in reversed(keys) if of), None)
    counts = last and counts_by_prompt(store.read_table("episodes", last, columns=COUNTED))[0]
    return LastEvaluation(run.environment, last is not None, counts or {})


def _interval(numbers: Mapping[str, Any], name: str) -> str:
    values = [numbers[f"{name}{end}"] for end in _ENDS]
    return "" if None in values else "{:.3f} [{:.3f}, {:.3f}]".format(*values)


def _difference(difference: Comparison | None, absent: str = "") -> dict[str, str]:
    if difference is None:
        return {"to the first": absent, "p": "", **pair_cells(None)}
    return {
        "to the first": str(difference),
        "p": p_text(difference.adjusted_p_value),
        **pair_cells(difference),
    }
