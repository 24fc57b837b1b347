"""Terminal output shared by ablations and sweeps: lists, progress, stored results."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn

from starpo.flows.abandoned import crash_abandoned
from starpo.flows.console.deployment import start_deployment, unfinished_in
from starpo.flows.console.documents.studies import GridRow
from starpo.flows.console.follow import PLAIN_EVERY_S, POLL_S, RunFailedError
from starpo.flows.console.listing import print_records
from starpo.flows.console.pages import write_page
from starpo.flows.console.second_witness import ADVICE, SILENCE_S
from starpo.flows.console.stores import open_store
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, description_column, print_json, say
from starpo.flows.console.watching import watching
from starpo.flows.flow_run import FlowRun
from starpo.flows.outcome import Outcome
from starpo.flows.presets import Shipped
from starpo.flows.server import ServerGoneError
from starpo.ragen.config.explanation import near
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.tabular import as_csv, as_latex
from starpo.ragen.studies.figures.leaderboard import draw_leaderboard
from starpo.ragen.studies.finish import CellsFailedError, StudyPlan
from starpo.ragen.studies.leaderboard import SweepResult
from starpo.ragen.studies.spec import StudySpec
from starpo.ragen.studies.studies import Studies
from starpo.ragen.studies.sweep_tables import pair_numbers, sweep_numbers, sweep_tables

Kind = Studies[Any, Any]
Look = Callable[[], tuple[Mapping[str, str], str]]
"""Returns the cells that are done (label -> how they ended), and a description of the active ones."""

_ERROR_NAME = f"{CellsFailedError.__name__}: "


def run_study(
    studies: Kind, plan: StudyPlan, spec: StudySpec, deployment: str, parameters: Mapping[str, Any], look: Look,
    as_json: bool, written: Mapping[str, str] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Run a study on the local server, follow it and print its result; if only cells failed, that of the others.

    Args:
        studies: Where its result is stored.
        plan: The planned study.
        spec: The study's specification.
        deployment: Flow and deployment.
        parameters: Parameters of the flow; those that are None are omitted.
        look: Reports its progress.
        as_json: Print only JSON; progress goes to standard error.
        written: As for `start_deployment`.

    Raises:
        StoreError, RunFailedError, CellsFailedError: As for `follow_study`.
    """
    try:
        follow_study(studies, plan, spec, deployment, parameters, look, Console(stderr=as_json), written)
    except CellsFailedError:
        print_result(studies, plan.name, as_json)
        raise
    print_result(studies, plan.name, as_json)


def follow_study(
    studies: Kind, plan: StudyPlan, spec: StudySpec, deployment: str, parameters: Mapping[str, Any], look: Look,
    console: Console, written: Mapping[str, str] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Run a study on the local server and follow it; one that is at work already, as after Ctrl-C, is followed.

    See `run_study` for the arguments.

    Raises:
        StoreError: If the store cannot be written.
        CellsFailedError: If cells failed; the result of the others is stored.
        RunFailedError: If the whole study failed, or another one of this name is at work.
    """
    witness = _ResultWitness(studies, plan.name)
    begun = _at_work(plan.name, parameters.get("store"))
    if begun is None:
        studies.begin(spec)
        given = {name: value for name, value in parameters.items() if value is not None}
        ended = start_deployment(deployment, given, plan.name, console, written)
    elif studies.has_begun(spec):
        say(console, f"{studies.word} {plan.name} is at work already: {begun.page}")
        ended = begun.ended
    else:
        raise RunFailedError(
            f"another {studies.word} of the name {plan.name} is at work, with other settings: {begun.page}. "
            f"`starpo cancel {plan.name}` stops it; or give this one another name"
        )
    with watching(console, f"{studies.word} {plan.name}", f"stop it:    starpo cancel {plan.name}"):
        outcome = _follow(studies, plan, look, console, ended, witness)
    if outcome.reason.startswith(_ERROR_NAME):
        raise CellsFailedError(outcome.reason.removeprefix(_ERROR_NAME))
    if outcome.status == "cancelled":
        raise RunFailedError(f"{studies.word} {plan.name} was cancelled; the same command continues it")
    if outcome.status != "completed":
        raise RunFailedError(outcome.reason)


def _at_work(name: str, store: str | None) -> FlowRun | None:
    """Find the flow run that works on a study; None without one, or without a server."""
    with suppress(ServerGoneError):
        crash_abandoned()
        for run in unfinished_in(open_store(store), name):
            if run.deployment_id is not None:
                return FlowRun(run.id)
    return None


def print_known(studies: Kind, shipped: Shipped, as_json: bool) -> None:
    """Print the shipped studies with their descriptions, and those with a result in the store."""
    results = studies.names()
    about = {name: shipped.description(name) for name in shipped.names()}
    about |= {name: f"{shipped.word} of your own" for name in results if name not in about}
    rows = [GridRow(grid=name, about=text, result=name in results) for name, text in about.items()]
    print_records(rows, as_json, "grids", "no grid")


def print_asked_result(studies: Kind, shipped: Shipped, given: str, as_json: bool) -> None:
    """Print the result of a study, given its name or its TOML file.

    Raises:
        ConfigError: If `given` is neither.
        StoreError: If it has no stored result.
    """
    known = list(dict.fromkeys([*studies.names(), *shipped.names()]))
    if given not in known and not Path(given).is_file():
        raise ConfigError(
            f"'{given}' is neither the name of a result nor a TOML file{near(given, known)}; "
            f"names: {', '.join(known) or 'none yet'}"
        )
    print_result(studies, given if given in known else studies.spec.load(Path(given)).name, as_json)


def print_result(studies: Kind, name: str, as_json: bool) -> None:
    """Print a stored result as JSON, or as tables, failures, conclusion, explanation of the columns, and warnings.

    Raises:
        StoreError: If there is no such result.
    """
    result, console = studies.get(name), Console()
    if as_json:
        print_json(result)
        return
    for table in type(studies).tables(result):
        if not table.rows:
            say(console, f"{table.title}: nothing was measured")
            continue
        numbers = [column for column in table.rows[0] if column not in table.texts]
        print_table(console, table.rows, title=f"{name}: {table.title}", numbers=numbers)
    for what, error in result.failures.items():
        console.print(f"failed: {what}: {error}", style="red")
    if conclusion := type(studies).conclude(result):
        console.print(conclusion, style="bold")
    for note in (type(studies).method(result), *(f"Note: {warning}." for warning in result.warnings)):
        console.print(note)
    for file in studies.files(name):
        say(console, f"{studies.place(name)}/{file}")


RESULT_FORMS = (".csv", ".tex", ".svg", ".pdf", ".png")
"""Suffixes of the files that `write_result` writes."""


def write_result(result: SweepResult, path: Path) -> list[Path]:
    """Write the result of a sweep to a file, by its suffix (`RESULT_FORMS`), and return absolute paths.

    CSV: every number, a row for each checkpoint, temperature and panel; beside it, NAME-pairs.csv has a row for each
    pair and panel. LaTeX: the tables as printed. SVG, PDF, PNG: the figure.

    Raises:
        ConfigError: If nothing was measured, or the file cannot be written.
    """
    if not result.is_measured:
        raise ConfigError(f"nothing to write to {path}: no cell of the sweep {result.name} was measured")
    form = path.suffix.lower().removeprefix(".")
    if form == "csv":
        tables = {path: sweep_numbers(result), path.with_stem(f"{path.stem}-pairs"): pair_numbers(result)}
        return [write_page(place, as_csv(rows)) for place, rows in tables.items() if rows]
    if form == "tex":
        return [write_page(path, "\n".join(as_latex(table.rows) for table in sweep_tables(result)))]
    return [write_page(path, draw_leaderboard(result, form))]


class _ResultWitness:
    """Tells by the stored result that a study has ended, if Prefect has not told it within `SILENCE_S`."""

    def __init__(self, studies: Kind, name: str) -> None:
        """Create it before the flow run starts: a result that is there by then tells nothing."""
        self._studies, self._name = studies, name
        self._earlier = studies.version(name)
        self._since: float | None = None

    def outcome(self, is_all_done: bool) -> Outcome | None:
        """Return how the study ended, to be asked while it is unfinished for Prefect; `is_all_done`: all its cells."""
        version = self._studies.version(self._name)
        if not version or (version == self._earlier and not is_all_done):
            self._since = None
            return None
        self._since = time.monotonic() if self._since is None else self._since
        if time.monotonic() - self._since < SILENCE_S:
            return None
        failures = self._studies.get(self._name).failures
        reason = f"{_ERROR_NAME}{len(failures)} failed, as the result says. {ADVICE}"
        return Outcome("failed", reason) if failures else Outcome("completed", ADVICE)


def _follow(
    studies: Kind,
    plan: StudyPlan,
    look: Look,
    console: Console,
    ended: Callable[[], Outcome | None],
    witness: _ResultWitness,
) -> Outcome:
    """Show how many cells are done, and which are active, until the flow run ends, or has by what is stored; without a
    terminal in a line every `PLAIN_EVERY_S` seconds."""
    columns = (SpinnerColumn(), description_column(), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    total, announced = len(plan.labels), set(look()[0])
    shown_at = time.monotonic()
    if announced:
        say(console, f"{len(announced)} of {total} {studies.cells} are stored")
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        row = bar.add_task(f"waiting for the {studies.word} to start", total=total)
        while True:
            outcome = ended()
            done, at_work = look()
            for label in (label for label in done if label not in announced):
                announced.add(label)
                say(console, f"{len(announced)} of {total}: {label} {done[label]}")
            bar.update(row, completed=len(done), description=at_work)
            if not console.is_terminal and time.monotonic() - shown_at >= PLAIN_EVERY_S:
                say(console, f"{len(done)} of {total} · {at_work}")
                shown_at = time.monotonic()
            outcome = outcome or witness.outcome(len(done) == total)
            if outcome:
                if outcome.reason.endswith(ADVICE):
                    say(console, f"{studies.word} {plan.name}: the result is stored. {ADVICE}")
                return outcome
            time.sleep(POLL_S)
