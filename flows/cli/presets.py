"""`starpo presets`."""

from typing import Annotated

import typer

from starpo.flows.cli.options import JsonOption
from starpo.flows.console.documents.settings import MethodRow, PresetRow
from starpo.flows.console.listing import print_records
from starpo.flows.console.terminal import Console, say
from starpo.flows.presets import FRAGMENTS, METHODS, PRESETS, preset
from starpo.ragen.core.errors import ConfigError


def presets(
    methods: Annotated[
        bool, typer.Option("--methods", help="List methods instead, for --method or `extends`.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the presets; those without an environment are for `extends` in a file of your own."""
    if methods:
        named = [MethodRow(method=name, about=METHODS.description(name)) for name in METHODS.names()]
        print_records(named, as_json, "methods")
        return
    for fault in PRESETS.faults:
        say(Console(stderr=True), f"warning: {fault}")
    rows: list[PresetRow] = []
    for name in PRESETS.names():
        about = PRESETS.description(name)
        if package := PRESETS.packages.get(name):
            about = f"{about} Of {package}."
        try:
            config = preset(name)
        except ConfigError:  # such as an environment that cannot be loaded
            about = f"Cannot be used; `starpo validate {name}` says why."
            rows.append(PresetRow(preset=name, about=about))
            continue
        rows.append(
            PresetRow(
                preset=name,
                environment=config.environment.type,
                policy=config.policy.type,
                iterations=config.iterations,
                about=about,
            )
        )
    rows += [PresetRow(preset=name, about=PRESETS.description(name)) for name in FRAGMENTS]
    print_records(rows, as_json, "presets")
