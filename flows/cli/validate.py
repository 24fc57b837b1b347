"""`starpo validate`."""

from typing import Annotated

import typer

from starpo.flows.cli.options import MethodOption, SetOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.terminal import print_json, write
from starpo.flows.presets import preset
from starpo.ragen.advice import advise
from starpo.ragen.context_fit import context_fits, template_lines
from starpo.ragen.core.counts import counted
from starpo.ragen.readiness import check_ready
from starpo.ragen.sizing.architecture import known_size
from starpo.tasks.first_checkpoint.stored_episodes import imitation_lines


def validate(
    file: Annotated[str, typer.Argument(help="A TOML file of settings, or the name of a preset.")],
    set_: SetOption = None,
    method: MethodOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what they resolve to, as JSON.")] = False,
    play: Annotated[
        int | None, typer.Option("--play", min=1, help="Play so many episodes here, and say what to expect of a run.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Check settings, and that this machine has what a run with them needs; --json prints what they resolve to.

    With --play the first policy plays: the fine-tuned or warm-started one if the store has it, else the model itself.
    """
    config = preset(file, parse_overrides(set_, method))
    check_ready(config, file, should_download=play is not None)
    if as_json:
        print_json(config.model_dump(mode="json"))
        return
    fits = context_fits(config, should_download=play is not None)
    policy_lines = template_lines(config) if fits and config.policy.type == "pretrained" else []
    if policy_lines and getattr(config.policy, "fine_tuning", None) is not None:
        policy_lines += imitation_lines(config, open_store(store).url)
    done = counted(config.iterations, "iteration")
    write(f"{file}: valid; {done} of {config.environment.type}. --json shows it all.")
    if not fits:
        write("prompts: not counted, as the model is not on this machine; a run downloads it")
    for fit in fits:
        write(f"{fit.place}: prompts are the program's own, and not counted" if fit.is_program else fit.summary)
    for line in policy_lines:
        write(line)
    if fits and any(part.type == "program" for part in config.environment.tagged().values()):
        from starpo.ragen.methods.programs.spelling import tools_line

        write(tools_line(config))
    for advice in advise(config, fits, known_size(config)):
        write(f"warning: {advice}")
    if play is not None:
        from starpo.flows.console.trial import show_trial

        show_trial(config, play, open_store(store))
