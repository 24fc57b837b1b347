"""`ragen validate`."""

from typing import Annotated

import typer

from starpo.flows.cli.options import MethodOption, SetOption, parse_overrides
from starpo.flows.console.terminal import print_json, write
from starpo.flows.presets import preset
from starpo.ragen.core.counts import counted
from starpo.ragen.readiness import check_ready


def validate(
    file: Annotated[str, typer.Argument(help="A TOML file of settings, or the name of a preset.")],
    set_: SetOption = None,
    method: MethodOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what they resolve to, as JSON.")] = False,
) -> None:
    """Check settings, and that this machine has what a run with them needs; --json prints what they resolve to."""
    config = preset(file, parse_overrides(set_, method))
    check_ready(config, file)
    if as_json:
        print_json(config.model_dump(mode="json"))
    else:
        done = counted(config.iterations, "iteration")
        write(f"{file}: valid; {done} of {config.environment.type}. --json shows it all.")
