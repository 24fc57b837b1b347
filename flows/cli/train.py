"""`ragen train`: check settings, run their deployment, follow the run, write its report."""

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from starpo.flows.cli.options import MethodOption, SetOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.terminal import Console, say
from starpo.flows.console.training import follow_training
from starpo.flows.memory_check import check_memory
from starpo.flows.presets import PRESETS
from starpo.flows.presets import preset as load_preset
from starpo.flows.reuse import reused
from starpo.flows.run_code import code_of, default_run_name
from starpo.ragen.advice import advise
from starpo.ragen.context_fit import context_fits
from starpo.ragen.evidence.sizing.architecture import known_size
from starpo.ragen.readiness import check_ready
from starpo.ragen.store.names import checked_name


def train(
    preset: Annotated[str, typer.Argument(help="Preset (`ragen presets` lists them), or a TOML file of settings.")],
    set_: SetOption = None,
    method: MethodOption = None,
    seed: Annotated[int | None, typer.Option(help="The run's seed.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Number of updates.")] = None,
    store: StoreOption = None,
    run: Annotated[str | None, typer.Option(help="Name of the run. Default: preset, seed, settings and code.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Reuse nothing from the store.")] = False,
) -> None:
    """Start the local server if needed, run the deployment starpo/PRESET (starpo/custom for a file), and follow it."""
    overrides = parse_overrides(set_, method)
    if fresh:
        overrides = {**overrides, "fresh": datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")}
    short = {key: value for key, value in {"seed": seed, "iterations": iterations}.items() if value is not None}
    config = load_preset(preset, {**overrides, **short})  # invalid settings fail here, before anything is started
    if config.policy.type == "pretrained":  # for the embedded policy, the flow checks: it needs the tokenizer first
        check_memory(config)
    check_ready(config, preset)
    console = Console()
    if config.policy.type == "pretrained":
        for advice in advise(config, context_fits(config), known_size(config)):
            say(console, f"warning: {advice}")
    is_file = preset not in PRESETS.names()
    settings = Path(preset).stem if is_file else preset  # label of the settings
    opened, run_name = open_store(store), run or default_run_name(settings, config)
    checked_name(run_name, "run")
    if run is not None:  # a user-given name must not belong to a run with other settings or code
        opened.runs.create(
            run, flow="starpo", preset=settings, config=config.model_dump(mode="json"), code=code_of(config)
        )
    say(console, str(reused(opened, run_name, config)))
    given = {"config": load_preset(preset).model_dump(mode="json"), "preset": settings} if is_file else {}
    optional = {"overrides": overrides or None, "store": store, "run": run}
    parameters = {**given, **short, **{key: value for key, value in optional.items() if value is not None}}
    written = {"config": f'config="$(ragen validate {shlex.quote(preset)} --json)"'}
    follow_training(f"starpo/{'custom' if is_file else preset}", parameters, opened, run_name, console, written)
