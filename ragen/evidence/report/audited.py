"""What the audits found, for a report: a line each, the serious ones first.

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
        verdict: What the findings come to, in one line.
        findings: By name, faults first, then warnings, then notes.
        unanswered: Audit -> why it could not be carried out, of a damaged store for example.
    """

    verdict: str
    findings: list[tuple[str, Finding]]
    unanswered: dict[str, str]


def audited(store: Store, run: str) -> Audited:
    """Carry out all audits, each by itself, so that what cannot be read keeps only those back that need it.

    Raises:
        StoreError: If there is no such run, or its records cannot be read.
    """
    found: dict[str, Finding] = {}
    unanswered: dict[str, str] = {}
    with open_database(store, [run]) as database:
        for name in chosen_audits([]):
            try:
                found |= dict(run_audits(database, [name]))
            except StarPOError as error:
                unanswered[name] = one_line(error)
    return Audited(verdict(found), serious_first(found), unanswered)
