"""`starpo verify`: verify with a progress bar, print a table of stages and every difference."""

import os
from typing import Annotated

import typer

from starpo.flows.cli.options import JsonOption, RunArgument, StoreOption, judging, open_store
from starpo.flows.console.progress import COUNTED, progress_bar
from starpo.flows.console.verification import print_verification
from starpo.ragen.core.errors import ConfigError


def verify(
    run: RunArgument,
    first: Annotated[
        int | None, typer.Option("--from", min=0, help="First iteration. Default: the run's first.")
    ] = None,
    last: Annotated[int | None, typer.Option("--to", min=0, help="Last iteration. Default: the run's last.")] = None,
    stage: Annotated[list[str] | None, typer.Option(help="Only this stage; may be repeated.")] = None,
    sample: Annotated[str, typer.Option(help="Share of the iterations, evenly spread, such as 10%.")] = "100%",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute a run's stages and compare; re-execute its actions, decode its tokens.

    The store is only read. Exit code 0: everything matches. 1: something differs or is damaged. 2: nothing was
    verified, for example because there is no such run. 3: nothing differs, but some checks could not be made, for
    reasons that are printed.
    """
    with judging():
        opened, share = open_store(store), _share(sample)
        opened.runs.get(run)  # report an unknown name before any heavy import
        # Threads of torch that wait for each other sleep, and leave the cores to whoever works: the run that is still
        # training here, or its server. Spinning takes several times as long then; results do not depend on it.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        with progress_bar("loading", COUNTED) as show:
            from starpo.tasks.loop.verify import verify_run

            verification = verify_run(
                opened,
                run,
                first=first,
                last=last,
                stages=stage or [],
                share=share,
                on_visit=lambda done, total, visit: show(done, total, f"iteration {visit.iteration} {visit.name}"),
            )
    print_verification(verification, as_json, is_sample=share < 1)
    raise typer.Exit(verification.exit_code)


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else 0.0
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(
            f"--sample {text} is not a share of the iterations; expected more than 0% and at most 100%, such as 10%"
        )
    return share
