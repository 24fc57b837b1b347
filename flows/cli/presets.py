"""`starpo presets`."""

from typing import Annotated, Any

import typer

from starpo.flows.cli.options import JsonOption
from starpo.flows.console.listing import print_rows
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
        print_rows(
            [{"method": name, "about": METHODS.description(name)} for name in METHODS.names()], as_json, "methods", ""
        )
        return
    for fault in PRESETS.faults:
        say(Console(stderr=True), f"warning: {fault}")
    rows: list[dict[str, Any]] = []
    for name in PRESETS.names():
        about = PRESETS.description(name)
        if package := PRESETS.packages.get(name):
            about = f"{about} Of {package}."
        try:
            config = preset(name)
        except ConfigError:  # such as an environment that cannot be loaded
            about = f"Cannot be used; `starpo validate {name}` says why."
            rows.append({"preset": name, "environment": "", "policy": "", "iterations": None, "about": about})
            continue
        rows.append({"preset": name, "environment": config.environment.type, "policy": config.policy.type,
                     "iterations": config.iterations, "about": about})  # fmt: skip
    for name in FRAGMENTS:
        row = {"preset": name, "environment": "", "policy": "", "iterations": None}
        rows.append(row | {"about": PRESETS.description(name)})
    print_rows(rows, as_json, "presets", "")
