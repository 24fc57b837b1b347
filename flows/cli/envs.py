"""`starpo envs`."""

from typing import Annotated, Any

import typer

from starpo.flows.cli.options import JsonOption
from starpo.flows.console.documents.settings import EnvironmentRow
from starpo.flows.console.listing import print_rows
from starpo.flows.console.terminal import print_json
from starpo.ragen.core.errors import CallLimitError, MissingPackageError, RegistryError
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.check import check as check_environment
from starpo.ragen.envs.check import replay_fault
from starpo.ragen.envs.variants import OTHERS, VARIANTS, variant


def envs(
    names: Annotated[
        list[str] | None, typer.Argument(help="Variants, module:attribute, or suite/task. Default: all.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Run the environment checker over them.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the environments and their variants. Exit code 1 if the checker finds a fault.

    The checker plays each one twice here and once in another process, and says whether it can be replayed.
    """
    rows = []
    for name, one in {name: variant(name) for name in names or VARIANTS}.items():
        row: dict[str, Any] = {"name": name, "type": one.type, "about": one.description}
        try:
            settings = one.settings
            checked = _checked(settings) if check else {}
        except (RegistryError, CallLimitError) as error:
            row["about"] = f"Cannot be loaded; `starpo play {name}` says why."
            checked = {"replayable": None, "replay_fault": "", "findings": [str(error)]} if check else {}
        except MissingPackageError as error:
            if names:
                raise
            checked = {"replayable": None, "replay_fault": f"not checked: {error}", "findings": []}
        rows.append(row | checked)
    for name, one in ({} if names else OTHERS).items():
        unchecked: dict[str, Any] = {
            "replayable": None,
            "replay_fault": "not checked: it needs settings of yours",
            "findings": [],
        }
        rows.append({"name": name, "type": one.type, "about": one.description} | (unchecked if check else {}))
    if as_json:
        print_json([EnvironmentRow(**row) for row in rows])
    else:
        print_rows([_shown(row) for row in rows], "environments", "")
    if any(row.get("findings") for row in rows):
        raise typer.Exit(1)


def _checked(settings: EnvironmentSettings) -> dict[str, Any]:
    findings = check_environment(settings)
    fault = replay_fault(settings, findings)
    return {"replayable": not fault, "replay_fault": fault, "findings": [str(finding) for finding in findings]}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Format a row for people, with the verdict and its reason as one sentence."""
    if "replayable" not in row:
        return row
    words = {True: "yes", False: f"no, because {row['replay_fault']}", None: row["replay_fault"] or "unknown"}
    shown = {name: value for name, value in row.items() if name != "replay_fault"}
    return shown | {"replayable": words[row["replayable"]], "findings": "\n".join(row["findings"]) or "none"}
