"""`starpo credit`: the true credit of turns, by continuations that are played; or such a measurement verified."""

from pathlib import Path
from typing import Annotated, Any

import typer

from starpo.flows.api.credit import Budget, Choice, MeasuredCredit, measure_credit, verify_credit
from starpo.flows.api.credit_comparison import compare_estimators
from starpo.flows.api.objectives import ALL
from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, judging, open_store, stoppable
from starpo.flows.console.credit_table import agreement_rows, document, numbers, part_rows, remarks
from starpo.flows.console.documents.measuring import CreditedTurn, Credits
from starpo.flows.console.pages import check_output, write_page
from starpo.flows.console.progress import SHARE, progress_bar, status_line
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.console.verification import print_verification
from starpo.ragen.core.counts import counted, duration
from starpo.ragen.core.errors import ConfigError, one_line
from starpo.ragen.core.tabular import as_csv
from starpo.ragen.learning.metrics.credit_comparison import ComparedCredit
from starpo.ragen.learning.true_credit.summary import Summary
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Store
from starpo.ragen.studies.figures.credit import draw_credit

_NONE = "none"
_LEGEND = (
    "advantage: reward + value before the next turn - value before this one, of the policy that played; +- a standard "
    "error",
    "solver: the same with the values of the environment's solver: 0 where the move lost nothing",
)


def credit(
    run: RunArgument,
    iteration: Annotated[int | None, typer.Option(help="Iteration of the rollout. Default: the last one.")] = None,
    groups: Annotated[
        str | None,
        typer.Option(help="Groups, comma-separated, such as g0003, or 'all'. Default: those that the filter kept."),
    ] = None,
    sample: Annotated[int | None, typer.Option(help="Trajectories of these, drawn at random. Default: all.")] = None,
    continuations: Annotated[
        int | None, typer.Option(help="Continuations of a state, on average. Default: 32, without another budget.")
    ] = None,
    budget_tokens: Annotated[int | None, typer.Option(help="Tokens to sample in all, in place of it.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Minutes to play, in place of it.")] = None,
    with_: Annotated[
        str,
        typer.Option(
            "--with", help="Methods whose estimators are compared, or TOML files, comma-separated; 'none' for none."
        ),
    ] = ALL,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The comparison: a figure as .svg, .pdf or .png, its numbers as .csv."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Turns to print, the most decisive ones.")] = 10,
    verify: Annotated[bool, typer.Option("--verify", help="Play a stored measurement again, and compare.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure which turns of a rollout made the difference: the value before and after each, by executed replay.

    The state before a turn is rebuilt by playing its trajectory again, and continuations of the policy that played it
    are sampled from there; the next turn's state likewise. What the estimators of methods say of the same turns stands
    beside it. Results are stored. With --verify, exit codes are those of `starpo verify`.
    """
    check_output(output, ".svg", ".pdf", ".png", ".csv")
    names = None if groups is None else tuple(name.strip() for name in groups.split(",") if name.strip())
    choice, budget = Choice(names, sample), Budget(continuations, budget_tokens, minutes)
    opened = open_store(store)
    if verify:
        with judging(), progress_bar("playing again", SHARE):
            verification = verify_credit(opened, run, iteration, choice, budget)
        print_verification(verification, as_json)
        raise typer.Exit(verification.exit_code)
    with stoppable(True), ModelPlacement() as placement:  # a checkpoint that is derived is there for both
        with progress_bar("playing continuations", SHARE) as show:
            measured = measure_credit(opened, run, iteration, choice, budget, show, placement)
        placement.players.close()
        compared, reason = _compared(opened, measured, with_, placement, must_be=output is not None)
    if as_json:
        print_json(
            Credits(
                run=measured.run, iteration=measured.iteration, artifact=measured.key, summary=measured.summary,
                seconds=measured.seconds, note=measured.note, turns=_turns(measured),
                comparison=compared and document(compared), not_compared=reason,
            )
        )  # fmt: skip
    else:
        _print(Console(), measured, top)
        _print_comparison(Console(), compared, reason)
    if output is None or compared is None:
        return
    form = output.suffix.lower().removeprefix(".")
    title = f"Credit by estimator: {measured.run}, iteration {measured.iteration}"
    drawn = as_csv(numbers(compared)) if form == "csv" else draw_credit(compared.comparison, title, form)
    say(Console(stderr=True), f"written: {write_page(output, drawn)}")


def _compared(
    store: Store, measured: MeasuredCredit, methods: str, placement: ModelPlacement, *, must_be: bool
) -> tuple[ComparedCredit | None, str]:
    """Return estimators beside the true credit; None and the reason if they cannot or shall not be compared."""
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if names == [_NONE]:
        if must_be:
            raise ConfigError(f"--output writes the comparison, which --with {_NONE} leaves out: give one of the two")
        return None, "it was not asked for"
    try:
        with status_line(f"estimators on {measured.run}"):
            run, iteration = measured.run, measured.iteration
            return compare_estimators(store, run, iteration, measured.credits, names, placement=placement), ""
    except ConfigError as error:
        if must_be or names != [ALL]:
            raise
        return None, one_line(error)


def _print_comparison(console: Console, compared: ComparedCredit | None, reason: str) -> None:
    if compared is None:
        say(console, f"estimators are not compared: {reason}")
        return
    print_table(console, agreement_rows(compared), title="estimators beside the true advantages")
    print_table(console, part_rows(compared), title="where their credit goes, by kind of turn")
    for sentence in remarks(compared):
        say(console, sentence)


def _turns(measured: MeasuredCredit) -> list[CreditedTurn]:
    """Return the credited turns, the most decisive ones first."""
    columns = [measured.turns[name].to_pylist() for name in ("trajectory_id", "turn", "executed_actions")]
    actions = {(name, turn): executed for name, turn, executed in zip(*columns, strict=True)}
    turns = [
        CreditedTurn(
            **{name: row[name] for name in CreditedTurn.model_fields.keys() & row.keys()},
            actions=actions[row["trajectory_id"], row["turn"]],
            solver_change=None
            if row["solver_before"] is None
            else row["reward"] + row["solver_after"] - row["solver_before"],
        )
        for row in measured.credits.drop_columns(["returns"]).to_pylist()
    ]
    return sorted(turns, key=lambda turn: -abs(turn.advantage))


def _print(console: Console, measured: MeasuredCredit, top: int) -> None:
    rows = [_row(turn) for turn in _turns(measured)[:top]]
    print_table(console, rows, title=f"{measured.run}, iteration {measured.iteration}")
    for sentence in _LEGEND:
        say(console, sentence)
    for line in _totals(measured.summary):
        say(console, line)
    say(console, f"{measured.summary.num_tokens:,} tokens in {duration(measured.seconds)}; credits/{measured.key}")
    if measured.note:
        say(console, measured.note)


def _row(turn: CreditedTurn) -> dict[str, Any]:
    return {
        "trajectory": turn.trajectory_id,
        "turn": turn.turn,
        "actions": " ".join(turn.actions) or "-",
        "value": f"{turn.value:.2f}",
        "after": f"{turn.value_after:.2f}",
        "advantage": f"{turn.advantage:+.2f}",
        "+-": f"{turn.advantage_se:.2f}",
        "solver": "-" if turn.solver_change is None else f"{turn.solver_change:+.2f}",
        "continuations": turn.num_continuations,
    }


def _totals(summary: Summary) -> list[str]:
    value, error = summary.value
    low, high = summary.played_interval
    lines = [
        f"{counted(summary.num_turns, 'turn')} of {summary.num_trajectories} trajectories, before which "
        f"{counted(summary.num_states, 'distinct state')}; {summary.num_continuations:,} continuations",
        f"before the first turn: value {value:.3f} +- {error:.3f}, success {summary.success:.3f}; the rollout from "
        f"there: return {summary.played_return:.3f}, success {summary.played_success:.3f} [{low:.3f}, {high:.3f}]",
    ]
    counts = {
        "not credited, as an error ended them or they were greedy": summary.num_left_out,
        "turns in which a limit ended the episode": summary.num_truncated,
        "turns without a response, as the context was full": summary.num_without_response,
        "later turns whose context began anew": summary.num_context_starts,
    }
    return lines + [f"{what}: {number}" for what, number in counts.items() if number]
