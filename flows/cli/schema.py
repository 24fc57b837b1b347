"""`starpo schema`: JSON Schemas of what commands print with `--json`."""

from typing import Annotated

import typer

from starpo.flows.cli.options import JsonOption
from starpo.flows.console.documents.forms import FORMS, about
from starpo.flows.console.documents.forms import schema as schema_of
from starpo.flows.console.documents.settings import FormRow
from starpo.flows.console.listing import print_records
from starpo.flows.console.terminal import print_json
from starpo.ragen.config.explanation import near
from starpo.ragen.core.errors import ConfigError


def schema(
    command: Annotated[
        list[str] | None, typer.Argument(help="A command, such as `show` or `store du`. Default: list all documents.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the JSON Schemas of what a command prints with --json, by the options that choose between them."""
    if not command:
        print_records([FormRow(form=form, about=about(form)) for form in FORMS], as_json, "documents")
        return
    name = " ".join(command)
    forms = [form for form in FORMS if form == name or form.startswith(f"{name} ")]
    if not forms:
        raise ConfigError(f"'{name}' prints no JSON{near(name, list(FORMS))}; `starpo schema` lists what does")
    print_json({form: schema_of(form) for form in forms})
