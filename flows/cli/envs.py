"""`ragen envs`."""

from typing import Annotated, Any

import typer

from starpo.flows.cli.options import JsonOption
from starpo.flows.console.listing import print_rows
from starpo.ragen.core.errors import RegistryError
from starpo.ragen.envs.check import check as check_environment
from starpo.ragen.envs.variants import VARIANTS, variant


def envs(
    names: Annotated[list[str] | None, typer.Argument(help="Variants, or module:attribute. Default: all.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Run the environment checker over them.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the environments and their variants. Exit code 1 if the checker finds a fault."""
    rows = []
    for name, one in {name: variant(name) for name in names or VARIANTS}.items():
        row: dict[str, Any] = {"name": name, "type": one.type, "about": one.description}
        try:
            settings = one.settings
        except RegistryError as error:
            row["about"], findings = f"Cannot be loaded; `ragen play {name}` says why.", [str(error)]
        else:
            findings = [str(finding) for finding in check_environment(settings)] if check else []
        rows.append({**row, "findings": findings} if check else row)
    print_rows(rows, as_json, "environments", "")
    if any(row.get("findings") for row in rows):
        raise typer.Exit(1)
