"""Pages made from the code: what a reader looks up."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
import pyarrow as pa
from typer.cli import get_docs_for_click

import starpo
from infra.site.pages import ROOT
from starpo.flows.cli.commands import COMMANDS, load
from starpo.flows.presets import FOLDER, METHODS, method
from starpo.ragen.config.load import read_fragment
from starpo.ragen.learning.metrics.glossary import METRICS
from starpo.schemas.datasets import DATASETS

_MAX_LINE = 88
_PARAMETER = re.compile(r", (?=\*|\w+:)")


def write_reference(docs: Path) -> None:
    """Write all pages below `reference` of the site's input."""
    folder = docs / "reference"
    (folder / "commands").mkdir(parents=True)
    pages = {
        "python": _python(),
        "datasets": _datasets(),
        "metrics": _metrics(),
        "methods": _methods(),
        **{f"commands/{_slug(panel)}": _commands(panel, names) for panel, names in COMMANDS.items() if names},
    }
    for name, lines in pages.items():
        (folder / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _slug(title: str) -> str:
    return title.lower().replace(" ", "-")


def _commands(panel: str, names: tuple[str, ...]) -> Iterator[str]:
    yield f"# {panel}\n\nEach command as `--help` describes it.\n"
    for name in names:
        command = load(name)
        context = command.context_class(command, info_name=name)
        yield get_docs_for_click(obj=command, ctx=context, indent=1, name=name, call_prefix="starpo")


def _datasets() -> Iterator[str]:
    yield (
        "# Datasets\n\nWhat stages exchange, as Arrow tables: their columns, from `schemas/datasets.py`. A column is "
        "never null unless its type says so; lists hold no nulls. `starpo sql` queries them, with views such as "
        "`trajectories` ([queries](../audit.md))."
    )
    for dataset in DATASETS.values():
        yield f"\n## {dataset.name}\n\nA row is {dataset.row}. Version {dataset.version}; key: "
        yield ", ".join(f"`{column}`" for column in dataset.key) + ".\n"
        rows = [(f"`{each.name}`", _type(each.type, each.nullable), each.meaning) for each in dataset.columns]
        yield _table(("column", "type", "meaning"), rows)


def _type(arrow: pa.DataType, nullable: bool) -> str:
    name = f"list of {arrow.value_type}" if pa.types.is_list(arrow) else str(arrow)
    return f"{name} or null" if nullable else name


def _metrics() -> Iterator[str]:
    yield "# Metrics\n\nNumbers that stages store in the dataset `metrics`; <words> stand for what varies.\n"
    rows = [(f"`{metric.name}`", metric.unit, f"{metric.meaning} ({metric.source})") for metric in METRICS]
    yield _table(("metric", "unit", "meaning (computed from)"), rows)


def _methods() -> Iterator[str]:
    """Yield each method with its description and what differs from the defaults."""
    defaults = read_fragment(FOLDER / "objective.toml", [FOLDER])["update"]
    yield (
        "# Methods\n\nWhat `--method NAME` and `extends` set, as its source has it, where it differs from the "
        "defaults (`flows/presets/objective.toml`). [How an objective is composed](../objectives.md).\n"
    )
    rows = []
    for name in METHODS.names():
        settings = {path.removeprefix("update."): value for path, value in method(name).items()}
        changed = [f"`{path} = {json.dumps(value)}`" for path, value in settings.items() if defaults.get(path) != value]
        rows.append((f"`{name}`", METHODS.description(name), ", ".join(changed) or "the defaults"))
    yield _table(("method", "what it is", "settings"), rows)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    cells = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |" for row in cells)


def _python() -> Iterator[str]:
    """Yield the names of `import starpo`, from their docstrings; nothing is imported for it."""
    yield "# Python interface\n\nThe names of `import starpo`. [From Python](../python.md) shows them at work.\n"
    exported = _read("starpo", "starpo/__init__.py")
    for name in sorted(starpo.__all__, key=str.lower):
        module, _, _ = exported.members[name].target_path.rpartition(".")
        described = _read(module, f"{module.replace('.', '/')}.py").members[name]
        yield from _described(f"starpo.{name}", described, 2)
        for member in described.members.values():
            if described.is_class and not member.name.startswith("_") and member.docstring:
                yield from _described(f"{name}.{member.name}", member, 3)


def _read(module: str, file: str) -> Any:
    path = ROOT / file
    return griffe.visit(module, path, path.read_text(encoding="utf-8"), docstring_parser=griffe.Parser.google)


def _described(title: str, described: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} {title}\n"
    if described.is_function:
        yield f"```python\n{_signature(described)}\n```\n"
    for section in described.docstring.parsed:
        if section.kind is griffe.DocstringSectionKind.text:
            yield f"{section.value}\n"
        elif isinstance(section.value, list):
            yield f"**{section.kind.value.replace('_', ' ').capitalize()}**\n"
            yield from (f"- {_item(section, item)}" for item in section.value)
            yield ""


def _signature(described: Any) -> str:
    """Return the signature; a long one with a line for each parameter."""
    text = described.signature()
    if len(text) <= _MAX_LINE:
        return text
    name, _, rest = text.partition("(")
    parameters, _, returned = rest.rpartition(")")
    lines = "".join(f"    {parameter},\n" for parameter in _PARAMETER.split(parameters))
    return f"{name}(\n{lines}){returned}"


def _item(section: Any, item: Any) -> str:
    name = item.annotation if section.kind is griffe.DocstringSectionKind.raises else getattr(item, "name", "")
    text = inspect.cleandoc(item.description).replace("\n", " ")
    return f"`{name}`: {text}" if name else text
