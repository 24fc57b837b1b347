"""Pydantic's errors as one readable message: each wrong setting by dotted path, where it was set, what is allowed.

ValidationError -> "filter.kep = 0.5 (my-run.toml): no such setting (did you mean 'keep'?); known: ..."
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from starpo.ragen.config.structure import alternatives, setting
from starpo.ragen.core.redaction import hidden_if_secret
from starpo.ragen.core.visible import MAX_VALUE, quoted


def explain(error: ValidationError, model: type[BaseModel], sources: Mapping[str, str]) -> str:
    """Describe a validation error.

    Args:
        error: The validation error.
        model: The model that was validated against; provides the known names.
        sources: Dotted path -> where it was set last. Paths that were not set anywhere are missing.

    Returns:
        One line for one wrong setting; for several, a line with their number and an indented line for each.
    """
    lines = [_line(details, model, sources) for details in error.errors(include_url=False)]
    return lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} settings are wrong:", *lines])


def near(name: str, names: Iterable[str]) -> str:
    """Return `" (did you mean 'keep'?)"` for a misspelt name, or an empty string if no name is similar."""
    matches = difflib.get_close_matches(name, list(names), n=2)
    return f" (did you mean {' or '.join(repr(match) for match in matches)}?)" if matches else ""


def _line(details: ErrorDetails, model: type[BaseModel], sources: Mapping[str, str]) -> str:
    path, names, tags = _located(details["loc"], model)
    value, source = details["input"], sources.get(path)
    is_setting = path and not isinstance(value, Mapping)
    shown = f" = {hidden_if_secret(path, quoted(value))}" if is_setting else ""
    where = f"{path}{shown}{f' ({source})' if source else ''}: " if path else ""
    match details["type"]:
        case "extra_forbidden":
            from starpo.ragen.core.gone import replaced

            known = f"; known: {', '.join(names)}" if names else ""
            name = path.rpartition(".")[2][:MAX_VALUE]
            return f"{where}no such setting{replaced('setting', name) or near(name, names)}{known}"
        case "missing":
            return f"{path} is missing and has no default"
        case "union_tag_not_found":
            return f"{where}`type` is missing; expected one of {', '.join(tags)}"
        case "union_tag_invalid":
            tag = details["ctx"]["tag"]
            return (
                f"{where}type = {quoted(tag)}: no such type{near(str(tag)[:MAX_VALUE], tags)}; known: {', '.join(tags)}"
            )
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{where}should be a table of settings"
    return where + details["msg"].removeprefix("Value error, ").replace("Input should", "should")


def _located(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str, list[str], list[str]]:
    """Follow an error's location through the models.

    Pydantic's locations also contain the tag of the chosen union member, which no user has written.

    Returns:
        The dotted path; the names of the settings beside it; for a union, its known types.
    """
    annotation: Any = model
    path: list[str] = []
    names: list[str] = []
    for part in map(str, location):
        models = alternatives(annotation)
        if len(models) > 1 and part in models:
            annotation = models[part]()
        else:
            path.append(part)
            tables = (model() for model in models.values())
            closed = (table for table in tables if table.model_config.get("extra") != "allow")
            names = sorted(name for table in closed for name in table.model_fields)
            annotation = setting(annotation, part)
    return ".".join(path), names, sorted(alternatives(annotation))
