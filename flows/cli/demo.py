"""`starpo demo`: a minute's training from nothing, an answer before and after it, and the run's page."""

import os
import shlex
import sys
from typing import Annotated

import typer

from starpo.flows.cli.options import StoreOption, stoppable
from starpo.flows.console.start import train_settings
from starpo.flows.console.terminal import Console, say

_BEGINNING = (
    "Two arms, known by their names: one always pays a little, the other more on average, and now and then nothing. A "
    "language model of two layers is made here, imitates players of little skill, and is then trained to choose by the "
    "names. No download, no account, no server; about a minute on two idle cores."
)
_NEXT = {
    "starpo view RUN": "the page of this run",
    "starpo verify RUN": "recompute its stages: the same digests?",
    "starpo play Bandit": "play it yourself; `starpo envs` lists other environments",
    "starpo train sokoban --local": "ten minutes: boxes onto targets",
    "starpo new environment mine": "an environment of your own, its test and its settings",
}
"""Command -> what it is for; RUN is the run's name, with its store if one was given."""


def demo(
    store: StoreOption = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="At the end, open the run's page; needs a terminal.")
    ] = True,
) -> None:
    """Train a tiny model for a minute, show what changed in its answers, and open the run's page."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait do not spin: a minute on busy cores too
    console = Console()
    say(console, _BEGINNING)
    with stoppable(is_local=True):
        opened, run = train_settings("demo", {}, console, store=store, is_local=True)
    from starpo.flows.console.before_after import print_before_after
    from starpo.flows.console.conclusion import conclude

    print_before_after(opened, run, console)
    conclude(opened, run, as_json=False)
    place = run if store is None else f"{run} --store {shlex.quote(store)}"
    for command, purpose in _NEXT.items():
        say(console, f"{command.replace('RUN', place)}  # {purpose}")
    if browser and sys.stdout.isatty():
        from starpo.flows.cli.view import view

        view([run], store=store)
