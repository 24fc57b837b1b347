"""`ragen validate`."""

from typing import Annotated

import typer

from starpo.flows.cli.options import MethodOption, SetOption, parse_overrides
from starpo.flows.console.terminal import print_json, write
from starpo.flows.presets import preset
from starpo.ragen.advice import advise
from starpo.ragen.context_fit import context_fits
from starpo.ragen.core.counts import counted
from starpo.ragen.evidence.sizing.architecture import known_size
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
        return
    done = counted(config.iterations, "iteration")
    write(f"{file}: valid; {done} of {config.environment.type}. --json shows it all.")
    fits = context_fits(config)
    if not fits:
        write("prompts: not counted, as the model is not on this machine; a run downloads it")
    for fit in fits:
        write(fit.summary)
    for advice in advise(config, fits, known_size(config)):
        write(f"warning: {advice}")
