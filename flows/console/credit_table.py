"""Estimators beside the true credit of turns: as tables of text, as numbers, and as a document.

ComparedCredit -> agreement_rows, part_rows, remarks (terminal), numbers (CSV), document (JSON)
"""

from collections.abc import Iterator
from typing import Any

from starpo.flows.console.documents.credit import ComparedEstimators
from starpo.ragen.core.counts import counted
from starpo.ragen.learning.metrics.credit_comparison import (
    HALVES,
    KINDS,
    POSITIONS,
    RANDOM,
    Agreement,
    ComparedCredit,
    PartAgreement,
)
from starpo.ragen.learning.metrics.credit_statistics import Statistic

_STATISTICS = ("within", "overall", "right_signs", "finds_decisive", "error_share")
_OF_PARTS = ("rank_correlation", "right_signs", "square_share")
_MAX_METHODS = 4
_FEW_GROUPS = 8
ALL_TURNS = "all"
"""In the numbers, the part that is all turns."""


def agreement_rows(compared: ComparedCredit) -> list[dict[str, str]]:
    """Return a row of text for each estimator, the best first."""
    return [
        {
            "estimator": one.estimator,
            "used by": _used_by(compared, one.estimator),
            "within": _text(one.within),
            "over all": _text(one.overall),
            "signs": _text(one.right_signs),
            "finds": _text(one.finds_decisive),
            "error": _text(one.error_share),
        }
        for one in compared.comparison.agreements
    ]


def part_rows(compared: ComparedCredit) -> list[dict[str, str]]:
    """Return a row of text for each estimator: where its credit goes, by kind of turn; the truth first."""
    kinds = [kind for kind in KINDS if kind in compared.comparison.square_shares]
    truth = {kind: f"{compared.comparison.square_shares[kind]:.2f}" for kind in kinds}
    rows = [{"estimator": "truth", **truth}]
    for one in compared.comparison.agreements[:-1]:
        shares = {kind: one.parts[kind].square_share if kind in one.parts else None for kind in kinds}
        rows.append({"estimator": one.estimator, **{kind: _value(share) for kind, share in shares.items()}})
    return rows


def remarks(compared: ComparedCredit) -> list[str]:
    """Say what the numbers are, and what was left out."""
    comparison = compared.comparison
    sentences = [
        f"{counted(comparison.num_turns, 'turn')} of {comparison.num_trajectories} trajectories in "
        f"{counted(comparison.num_groups, 'group')}; the true advantage of {comparison.num_significant} differs from 0",
        "within, over all: rank correlation with the true advantage; signs: right ones where it differs from 0; finds: "
        "trajectories whose largest estimate is a decisive turn; error: after the best scale, 1 for saying nothing",
        "95% intervals over groups; the second table: shares of an estimator's squared credit",
        f"{RANDOM}: the true advantages shuffled; {HALVES}: half of the continuations against the other half",
    ]
    limits = [
        f"{limit.value:.2f} {where}"
        for where, limit in (("within", comparison.attainable_within), ("over all", comparison.attainable_overall))
        if limit is not None
    ]
    noise = f"{100 * comparison.noise_share:.0f}% of the true advantages' mean square is noise"
    if comparison.num_groups < _FEW_GROUPS:
        sentences.append(
            f"with fewer than {_FEW_GROUPS} groups the intervals of correlations and errors are too narrow"
        )
    sentences.append(noise + (f": a perfect estimator would reach {' and '.join(limits)}" if limits else ""))
    calibration = comparison.calibration
    if calibration is not None:
        sentences.append(
            f"critic: slope {_text(calibration.slope)}, correlation {_text(calibration.correlation)} with the true "
            f"value, on average {_text(calibration.offset)} above it"
        )
    sentences += [f"left out: {name}: {reason}" for name, reason in compared.left_out.items()]
    return sentences


def numbers(compared: ComparedCredit) -> list[dict[str, Any]]:
    """Return a row of numbers for each estimator, and for each kind and position of turns; None where undefined."""
    return [row for one in compared.comparison.agreements for row in _numbers(compared, one)]


def document(compared: ComparedCredit) -> ComparedEstimators:
    """Return the document of a comparison."""
    comparison = compared.comparison
    shared = ComparedEstimators.model_fields.keys() & vars(comparison).keys()
    return ComparedEstimators(
        **{name: getattr(comparison, name) for name in shared},
        artifact=compared.key,
        estimators=comparison.agreements,
        methods=compared.methods,
        left_out=compared.left_out,
    )


def _numbers(compared: ComparedCredit, one: Agreement) -> Iterator[dict[str, Any]]:
    parts: list[tuple[str, Agreement | PartAgreement]] = [(ALL_TURNS, one)]
    parts += [(part, one.parts[part]) for part in (*KINDS, *POSITIONS) if part in one.parts]
    for part, agreement in parts:
        statistics = {name: getattr(agreement, name, None) for name in dict.fromkeys((*_STATISTICS, *_OF_PARTS))}
        yield {
            "run": compared.run,
            "iteration": compared.iteration,
            "estimator": one.estimator,
            "methods": " ".join(compared.methods.get(one.estimator, ())),
            "turns": part,
            "num_turns": agreement.num_turns,
            **{
                f"{name}{end}": getattr(value, end.strip("_") or "value", None)
                for name, value in statistics.items()
                for end in ("", "_low", "_high")
            },
        }


def _used_by(compared: ComparedCredit, estimator: str) -> str:
    methods = compared.methods.get(estimator, [])
    more = f" and {len(methods) - _MAX_METHODS} more" if len(methods) > _MAX_METHODS else ""
    return ", ".join(methods[:_MAX_METHODS]) + more


def _text(one: Statistic | None) -> str:
    if one is None:
        return "-"
    return (
        f"{one.value:.2f}" if one.low is None or one.high is None else f"{one.value:.2f} [{one.low:.2f} {one.high:.2f}]"
    )


def _value(one: Statistic | None) -> str:
    return "-" if one is None else f"{one.value:.2f}"
