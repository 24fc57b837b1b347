"""`run_audits`: runs the audits of `ragen.core.registry.AUDITS`."""

import difflib
import inspect
from collections.abc import Iterator, Sequence

from starpo.ragen.config.plugin_calls import plugin_call
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.gone import replaced
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import AUDITS
from starpo.ragen.evidence.audit.database import Database
from starpo.ragen.evidence.audit.finding import Finding


def chosen_audits(names: Sequence[str]) -> list[str]:
    """Return these audits without duplicates; all audits if `names` is empty.

    Raises:
        ConfigError: If an audit does not exist; the message suggests similar names.
    """
    for name in names:
        if name not in AUDITS:
            near = difflib.get_close_matches(name, AUDITS, n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(near)}?" if near else f"there are: {', '.join(AUDITS)}"
            raise ConfigError(f"there is no audit '{name}'{replaced('audit', name) or f'; {hint}'}")
    return list(dict.fromkeys(names)) or list(AUDITS)


def run_audits(database: Database, names: Sequence[str] = ()) -> Iterator[tuple[str, Finding]]:
    """Run audits and yield the name and finding of each as it completes.

    Args:
        database: The views of one or several runs.
        names: Audits to run; if empty, all audits in registry order.

    Raises:
        ConfigError: If an audit does not exist.
    """
    for name in chosen_audits(names):
        with plugin_call("audit", AUDITS, name):
            finding = load(AUDITS, name)(database)
        yield name, finding


def about(name: str) -> str:
    """Return a one-line description of an audit."""
    return (inspect.getdoc(load(AUDITS, name)) or "").partition("\n")[0]
