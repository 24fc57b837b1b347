"""Findings of the audits for a report, most serious first.

store, run -> audits -> Audited -> page
"""

from dataclasses import dataclass

from starpo.ragen.core.errors import StarPOError, one_line
from starpo.ragen.evidence.audit.audits import chosen_audits, run_audits
from starpo.ragen.evidence.audit.finding import Finding, serious_first, verdict
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.store import Store


@dataclass(frozen=True)
class Audited:
    """The audits of a run.

    Attributes:
        verdict: Summary of the findings in one line.
        findings: (name, finding), faults first, then warnings, then notes.
        unanswered: Audit -> why it could not be run, for example because the store is damaged.
    """

    verdict: str
    findings: list[tuple[str, Finding]]
    unanswered: dict[str, str]


def audited(store: Store, run: str) -> Audited:
    """Run all audits independently, so that unreadable data only affects the audits that need it.

    Raises:
        StoreError: If there is no such run, or its records cannot be read.
    """
    findings: dict[str, Finding] = {}
    unanswered: dict[str, str] = {}
    with open_database(store, [run], has_many_queries=True) as database:
        for name in chosen_audits([]):
            try:
                findings |= dict(run_audits(database, [name]))
            except StarPOError as error:
                unanswered[name] = one_line(error)
    return Audited(verdict(findings), serious_first(findings), unanswered)
