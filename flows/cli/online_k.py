"""Online-k: what became of reused rollouts."""

from typing import Annotated

import typer

from starpo.flows.cli.common import LOOK, JsonOption, StoreOption, app, open_store


@app.command(name="online-k", rich_help_panel=LOOK)
def online_k(
    runs: Annotated[
        list[str], typer.Argument(help="Names of runs, or patterns such as 'online-k-*'; several are compared.")
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how off-policy each reuse of a rollout was: ratios, effective sample size, clip share, KL."""
    from starpo.flows.console.online_k import print_online

    print_online(open_store(store), runs, as_json)
