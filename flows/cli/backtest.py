"""`ragen backtest`: which alarms would have predicted a collapse, how early, and with how many false alarms."""

from pathlib import Path
from typing import Annotated, Any

import typer

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.pages import check_output, write_page
from starpo.flows.console.progress import COUNTED, progress_bar
from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.flows.diagnosis import backtest_runs
from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.diagnostics.backtest import Score
from starpo.ragen.evidence.diagnostics.backtest_chart import draw_leads


def backtest(
    runs: Annotated[list[str] | None, typer.Argument(help="Names of runs. Default: all that trained.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Draw the leads (SVG).")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try every alarm on stored runs: lead before success halved, false alarms, missed collapses.

    Every rule sees only what could have been known at an iteration; the collapse itself is judged in hindsight.
    """
    check_output(output, ".svg")
    opened, console = open_store(store), Console(stderr=True)
    with progress_bar("runs", COUNTED) as show:
        tested = backtest_runs(opened, runs, show)
    if as_json:
        print_json({"rules": [_facts(score) for score in tested.scores], "not_judged": tested.not_judged})
    else:
        shown = Console()
        fallen = {outcome.run: outcome.fell for outcome in tested.scores[0].outcomes if outcome.fell is not None}
        num_runs = len(tested.scores[0].outcomes)
        say(shown, f"{counted(num_runs, 'run')}; in {len(fallen)} of them success halved and did not recover")
        if fallen:
            print_table(shown, [{"run": run, "halved_at": iteration} for run, iteration in fallen.items()])
        scores = [score for score in tested.scores if fallen or score.num_false]
        if scores:
            print_table(shown, [_row(score) for score in scores])
        if not fallen:
            say(shown, f"none fell, so no rule could be early; {len(tested.scores) - len(scores)} rules never rang")
        for run, reason in tested.not_judged.items():
            say(shown, f"not judged: {run}: {reason}")
    if output is not None:
        if not tested.scores[0].num_fallen:
            raise ConfigError(f"{output} is not drawn: success halved in none of the runs, so there is no lead")
        say(console, f"drawn: {write_page(output, draw_leads(tested.scores))}")


def _row(score: Score) -> dict[str, Any]:
    num_sound = len(score.outcomes) - score.num_fallen
    return {
        "rule": score.rule.name,
        "before_the_fall": f"{score.num_early} of {score.num_fallen}",
        "missed": score.num_missed,
        "leads": ", ".join(map(str, score.leads)) or "-",
        "false_alarms": f"{score.num_false} of {num_sound}",
        "rings_when": score.rule.words,
    }


def _facts(score: Score) -> dict[str, Any]:
    outcomes = [{"run": o.run, "fell": o.fell, "rang": o.rang, "lead": o.lead} for o in score.outcomes]
    counts = {name: getattr(score, name) for name in ("num_fallen", "num_early", "num_missed", "num_false")}
    return {
        "rule": score.rule.name, "words": score.rule.words, **counts, "median_lead": score.median_lead,
        "outcomes": outcomes,
    }  # fmt: skip
