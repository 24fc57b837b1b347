"""Live progress of a run in a terminal: iteration, success, reward std, remaining time."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, SpinnerColumn, TimeElapsedColumn
from rich.text import Text

from starpo.flows.console.terminal import Console, description_column, print_json_line, say
from starpo.flows.outcome import Outcome
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.store import Store
from starpo.ragen.store.records.run import RunState
from starpo.ragen.store.records.runs import Runs
from starpo.tasks.loop.rollback import is_rollback

if TYPE_CHECKING:
    from starpo.flows.console.second_witness import SecondWitness

POLL_S = 0.5
PLAIN_EVERY_S = 20.0
"""Without a terminal, seconds between lines on the progress of a stage."""
_PREPARING = ("starting", "warm_start", "fine-tuning")
"""First words of the messages before the first iteration."""
_WAITING = "waiting for the run to start"
_UNHEARD = "the run is over; waiting for Prefect to say so"
_FEW_WELL_FORMED = 0.5
"""Share of well-formed responses below which it is shown."""
_WORTH_SAYING_S = 5.0
"""Time left of a stage from which it is shown."""
_ROLLBACK_POLLS = 20
_MEASURED = ("iteration", "evaluated_at", "success", "evaluation")
"""Facts of a state that change when there is a point more to draw."""
FINAL = ("completed", "failed", "cancelled")


class RunFailedError(StarPOError):
    """The run did not complete."""


class RunBar(Progress):
    """Progress bar with a task's `numbers` and `curves` below it, as side by side they are too wide for 80 columns."""

    def __init__(self, console: Console) -> None:
        columns = (SpinnerColumn(), description_column(), BarColumn(), TimeElapsedColumn())
        super().__init__(*columns, console=console, disable=not console.is_terminal)

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bars, then the numbers, then the curves."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            for line in (Text(task.fields["numbers"]), *task.fields["curves"]):
                yield Padding(line, (0, 0, 0, 2))


class _Lines:
    """Lines for a console without a terminal: every change of the numbers, and every `PLAIN_EVERY_S` seconds what is
    done now; a warning on any console, once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = self._activity = self._warning = ""
        self._shown_at = self._begun_at = time.monotonic()

    def show(self, numbers: str, activity: str, now: str, left: str = "") -> None:
        """Print the numbers if they changed, else what is done `now` if it is time; `left`: how long it will take."""
        at = time.monotonic()
        if activity != self._activity:
            self._activity, self._begun_at = activity, at
        if self._console.is_terminal:
            return
        if numbers != self._shown:
            self._shown, self._shown_at = numbers, at
            say(self._console, numbers)
        elif at - self._shown_at >= PLAIN_EVERY_S:
            self._shown_at = at
            say(self._console, f"{now} · {_duration(at - self._begun_at)} so far{left}")

    def warn(self, warning: str) -> None:
        """Print the run's first warning."""
        if warning and not self._warning:
            self._warning = warning
            say(self._console, f"warning: {warning}")


def follow_run(
    store: Store,
    run: str,
    console: Console,
    ended: Callable[[], Outcome | None] | None = None,
    witness: "SecondWitness | None" = None,
) -> str:
    """Show a run until it ends; after a rollback, continue with the fork.

    Args:
        store: The store that the run writes to, and from which its progress is read.
        run: The run's name.
        console: Console to draw on; without a terminal, a line is printed for each change of the numbers, and every
            `PLAIN_EVERY_S` seconds.
        ended: Returns how the run's flow run ended, or None while it is unfinished. None to use the run's own state and
            its process.
        witness: Asked while `ended` returns None.

    Returns:
        The name of the run that was shown last.

    Raises:
        RunFailedError: If it did not complete, or no process works on it any more; the message includes the run's own.
    """
    with RunBar(console) as bar:
        row, lines = bar.add_task(_WAITING, total=None, numbers="", curves=()), _Lines(console)
        draw_curves = _curve_drawer(store, console)
        for run, state, outcome in _watch(store, run, ended, witness):  # noqa: B020
            if state is not None and (state.status == "running" or outcome):
                facts, numbers, place = state.metrics, _numbers(state.metrics), _place(state)
                doing, _, detail = state.message.partition(" ")
                bar.update(
                    row,
                    description=f"{place} · {doing}{_share(facts)}",
                    completed=facts.get("iteration", 0),
                    total=facts.get("iterations"),
                    numbers=" · ".join(filter(None, (detail + _stage_left(facts), numbers))),
                    curves=draw_curves(run, facts),
                )
                now = f"{place} · {state.message}{_share(facts)}"
                lines.show(f"{place} {numbers}".strip(), doing, now, _stage_left(facts))
                lines.warn(state.warning)
            elif outcome is None:
                waiting = _UNHEARD if witness and witness.knows_end else _WAITING
                lines.show("", waiting, waiting)
    _expect_completed(run, outcome)
    if outcome and witness and witness.has_told:
        say(console, f"run {run}: {outcome.reason}")
    return run


def follow_as_json(store: Store, run: str) -> None:
    """Print a line of JSON whenever an iteration, the state or the warning of a run is new, and every `PLAIN_EVERY_S`
    seconds.

    Raises:
        RunFailedError: As for `follow_run`.
    """
    from starpo.flows.console.documents.training import ProgressLine

    shown, shown_at = None, 0.0
    for run, state, outcome in _watch(store, run):  # noqa: B020
        progress = ProgressLine(
            run=run,
            state=outcome.status if outcome else state.status if state else "waiting",
            activity=outcome.reason if outcome else state.message if state else "",
            numbers=state.metrics if state else {},
            warning=state.warning if state else "",
            is_over=outcome is not None,
        )
        news = (run, progress.state, progress.warning, progress.numbers.get("iteration"), progress.is_over)
        if news != shown or time.monotonic() - shown_at >= PLAIN_EVERY_S:
            shown, shown_at = news, time.monotonic()
            print_json_line(progress)
    _expect_completed(run, outcome)


def _watch(
    store: Store,
    run: str,
    ended: Callable[[], Outcome | None] | None = None,
    witness: "SecondWitness | None" = None,
) -> Iterator[tuple[str, RunState | None, Outcome | None]]:
    """Yield run, state and outcome at every poll, the last time with an outcome; after a rollback those of the fork."""
    ask = ended or (lambda: _outcome(store.runs, run))
    outcome = None
    while outcome is None:
        outcome = ask() or (witness.outcome(run) if witness else None)
        state = store.runs.state(run)
        if state is not None and state.status == "failed" and (fork := _rolled_back_to(store.runs, run)):
            run, outcome = fork, None
            continue
        yield run, state, outcome
        if outcome is None:
            time.sleep(POLL_S)


def _expect_completed(run: str, outcome: Outcome | None) -> None:
    if outcome is not None and outcome.status != "completed":
        raise RunFailedError(f"run {run} ended as {outcome.status}: {outcome.reason}")


def _curve_drawer(store: Store, console: Console) -> Callable[[str, Mapping[str, float]], Iterable[Text]]:
    """Return what draws the success of a run with the facts of its state; nothing without a terminal."""
    if not console.is_terminal:
        return lambda run, facts: ()
    from starpo.flows.console.curves import SuccessReader, curve_lines

    reader = SuccessReader(store)
    return lambda run, facts: curve_lines(console.encoding, reader.curves(run, (run, *map(facts.get, _MEASURED))))


def _rolled_back_to(runs: Runs, run: str) -> str | None:
    """Find the fork that continues the run; its process starts it right after recording that the run failed."""
    for _ in range(_ROLLBACK_POLLS if _may_roll_back(runs, run) else 1):
        if fork := next((name for name in runs.names() if is_rollback(name, run)), None):
            return fork
        time.sleep(POLL_S)
    return None


def _may_roll_back(runs: Runs, run: str) -> bool:
    diagnostics = runs.get(run).config.get("diagnostics", {})
    return diagnostics.get("on_collapse") == "roll_back" and bool(diagnostics.get("remedies"))


def _outcome(runs: Runs, run: str) -> Outcome | None:
    is_running = runs.is_running(run)  # checked first: a process writes the final state before it releases the run
    state = runs.state(run)
    if state is None:
        return None
    if state.status in FINAL:
        return Outcome(state.status, state.message)
    if is_running or _is_starting(run):
        return None
    heard = runs.last_heard(run) or state.heartbeat
    return Outcome(
        "interrupted",
        f"its process ({runs.process(run)}) has ended; its last heartbeat was at {heard:%Y-%m-%d %H:%M:%S} UTC. What "
        "the run stored is kept: the same `starpo train` continues it",
    )


def _is_starting(run: str) -> bool:
    """Whether Prefect is starting or restarting it, which takes some seconds until its process works."""
    from starpo.flows.flow_run import is_starting

    return is_starting(run)


def _place(state: RunState) -> str:
    facts = state.metrics
    if state.message.partition(" ")[0] in _PREPARING:
        return "before the first iteration"
    if facts.get("iterations") == 0:  # a run without updates, such as an evaluation's
        return "first checkpoint"
    return f"iteration {facts.get('iteration', 0):.0f}/{facts.get('iterations', 0):.0f}"


def _share(facts: Mapping[str, float]) -> str:
    return f" {facts['fraction']:.0%}" if "fraction" in facts else ""


def _stage_left(facts: Mapping[str, float]) -> str:
    """Format the time left of the current stage, where that is worth a word."""
    left = facts.get("stage_seconds_left", 0.0)
    return f", about {_duration(left)} left of this stage" if left >= _WORTH_SAYING_S else ""


def _numbers(facts: dict[str, float]) -> str:
    at = facts.get("evaluated_at", facts.get("iteration"))
    age = ""
    if at is not None and at != facts.get("iteration"):
        age = f" (after {counted(facts.get('evaluated_after', at), 'update')})"
    shown = (
        ("evaluation", "panel success {:.3f}" + age),
        ("success", "training success {:.3f}"),
        ("reward_std", "reward std {:.2f}"),
    )
    parts = [form.format(facts[name]) for name, form in shown if name in facts]
    if facts.get("format_ok", 1.0) < _FEW_WELL_FORMED:
        parts.append(f"{facts['format_ok']:.0%} well-formed")
    if facts.get("updates", facts.get("iteration")) != facts.get("iteration"):
        parts.append(counted(facts["updates"], "update"))
    if "seconds_left" in facts:
        parts.append(f"{_duration(facts['seconds_left'])} left")
    return " · ".join(parts)


def _duration(seconds: float) -> str:
    """Format a time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
