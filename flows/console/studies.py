"""What ablations and sweeps have in common on the screen: how far they are, their end, their stored result."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

from starpo.flows.console.follow import Outcome, RunFailedError
from starpo.flows.console.listing import print_rows
from starpo.flows.console.terminal import Console, description_column, print_json, say
from starpo.ragen.config.explanation import near
from starpo.ragen.core.errors import ConfigError

_ERROR_NAME = "CellsFailedError: "


def counting(console: Console) -> Progress:
    """A bar of cells that are done; on a terminal only."""
    columns = (
        SpinnerColumn(),
        description_column(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)


def conclude(outcome: Outcome, show: Callable[[], None]) -> None:
    """Show the result if there is one: where some cells failed, that of the others.

    Raises:
        RunFailedError: If a cell failed, or everything.
    """
    if outcome.status == "completed" or outcome.reason.startswith(_ERROR_NAME):
        show()
    if outcome.status != "completed":
        raise RunFailedError(outcome.reason.removeprefix(_ERROR_NAME))


def result_name(given: str, known: Sequence[str], name_in: Callable[[Path], str]) -> str:
    """The name of a result that a user asks for by its name, or by the TOML file that it is the result of.

    Args:
        given: Either.
        known: Names that there are.
        name_in: Reads the name in a TOML file.

    Raises:
        ConfigError: If it is neither.
    """
    if given in known:
        return given
    if Path(given).is_file():
        return name_in(Path(given))
    raise ConfigError(
        f"'{given}' is neither the name of a result nor a TOML file{near(given, known)}; "
        f"names: {', '.join(known) or 'none yet'}"
    )


def print_stored(result: BaseModel, place: str, as_json: bool, print_tables: Callable[[], None]) -> None:
    """A result as its record, or as tables and where its files are."""
    if as_json:
        print_json(result.model_dump(mode="json"))
        return
    print_tables()
    for file in ("result.json", "success.svg"):
        say(Console(), f"{place}/{file}")


def print_remarks(console: Console, failures: Iterable[tuple[str, str]], method: str, warnings: Iterable[str]) -> None:
    """What failed and why, what the columns are, and what to keep in mind."""
    for what, error in failures:
        console.print(f"failed: {what}: {error}", style="red", highlight=False, markup=False)
    for note in (method, *(f"Note: {warning}." for warning in warnings)):
        console.print(note, highlight=False, markup=False)


def print_known(kind: str, shipped: Mapping[str, str], results: Sequence[str], as_json: bool) -> None:
    """Those that come with the package, with what they are about, and those of which the store has a result."""
    rows = [
        {kind: name, "about": shipped.get(name, f"a {kind} of your own"), "result": name in results}
        for name in [*shipped, *(name for name in results if name not in shipped)]
    ]
    print_rows(rows, as_json, f"{kind}s", f"no {kind}")
