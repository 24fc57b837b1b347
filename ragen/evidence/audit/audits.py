"""`run_audits`: asks a run the questions of `ragen.core.registry.AUDITS`."""

import difflib
import inspect
from collections.abc import Iterator, Sequence

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import AUDITS
from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding


def chosen_audits(names: Sequence[str]) -> list[str]:
    """These audits, each once; all of them for none.

    Raises:
        ConfigError: If one does not exist; the message names those that are near.
    """
    for name in names:
        if name not in AUDITS:
            near = difflib.get_close_matches(name, AUDITS, n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"there are: {', '.join(AUDITS)}"
            raise ConfigError(f"there is no audit '{name}'; {hint}")
    return list(dict.fromkeys(names)) or list(AUDITS)


def run_audits(database: Database, names: Sequence[str] = ()) -> Iterator[tuple[str, Finding]]:
    """Name and finding of each audit, as they are done.

    Args:
        database: The views of one run, or of several.
        names: Which audits; none: all, in the order of the registry.

    Raises:
        ConfigError: If an audit does not exist.
    """
    for name in chosen_audits(names):
        yield name, load(AUDITS, name)(database)


def about(name: str) -> str:
    """One line on what an audit asks."""
    return (inspect.getdoc(load(AUDITS, name)) or "").partition("\n")[0]
