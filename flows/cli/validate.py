"""`starpo validate`."""

from typing import Annotated

import typer

from starpo.flows.cli.options import (
    JsonOption,
    MethodOption,
    SetOption,
    SettingsOption,
    StoreOption,
    open_store,
    parse_overrides,
)
from starpo.flows.console.terminal import print_json, write
from starpo.flows.presets import preset
from starpo.ragen.advice import advise
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.context_fit import context_fits, template_lines
from starpo.ragen.core.counts import counted
from starpo.ragen.readiness import check_ready
from starpo.ragen.sizing.architecture import known_size
from starpo.tasks.first_checkpoint.stored_episodes import imitation_lines


def validate(
    file: Annotated[str, typer.Argument(help="A TOML file of settings, or the name of a preset.")],
    set_: SetOption = None,
    method: MethodOption = None,
    settings: SettingsOption = False,
    play: Annotated[
        int | None, typer.Option("--play", min=1, help="Play so many episodes here, and say what to expect of a run.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check settings, and that this machine has what a run with them needs; --settings prints what they resolve to.

    With --play the first policy plays: the fine-tuned or warm-started one if the store has it, else the model itself.
    """
    config = preset(file, parse_overrides(set_, method))
    opened = open_store(store) if config.teacher is not None else None
    check_ready(config, file, should_download=play is not None, store=opened)
    if settings:
        print_json(config)
        return
    fits = context_fits(config, should_download=play is not None)
    policy_lines = template_lines(config) if fits and config.policy.type == "pretrained" else []
    if policy_lines and getattr(config.policy, "fine_tuning", None) is not None:
        policy_lines += imitation_lines(config, open_store(store).url)
    if fits and any(part.type == "program" for part in config.environment.tagged().values()):
        from starpo.ragen.methods.programs.spelling import tools_line

        policy_lines.append(tools_line(config))
    contexts = [
        f"{fit.place}: prompts are the program's own, and not counted" if fit.is_program else fit.summary
        for fit in fits
    ]
    warnings = advise(config, fits, known_size(config))
    if as_json:
        _print_json(config, contexts, policy_lines, warnings, play, store)
        return
    iterations = counted(config.iterations, "iteration")
    write(f"{file}: valid; {iterations} of {config.environment.type}. --settings shows them all.")
    for line in contexts or ["prompts: not counted, as the model is not on this machine; a run downloads it"]:
        write(line)
    for line in policy_lines:
        write(line)
    for warning in warnings:
        write(f"warning: {warning}")
    if play is not None:
        from starpo.flows.console.trial import show_trial

        show_trial(config, play, open_store(store))


def _print_json(
    config: StarPOConfig,
    contexts: list[str],
    notes: list[str],
    warnings: list[str],
    play: int | None,
    store: str | None,
) -> None:
    from starpo.flows.console.documents.planning import Validation
    from starpo.flows.console.trial import first_episodes

    print_json(
        Validation(
            settings=config.model_dump(mode="json"),
            contexts=contexts,
            notes=notes,
            warnings=warnings,
            episodes=None if play is None else first_episodes(config, play, open_store(store)),
        )
    )
