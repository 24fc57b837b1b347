"""Names: a public class is found by searching for its name, a local name says what the value is, a test's is short."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("flows", "ragen", "schemas", "tasks")
VERBS = {"asked", "found", "own", "said", "seen", "told", "twin"}
VERB = re.compile(rf"\b_*({'|'.join(VERBS)})_*\b(?! (?!in\b)\w)")
"""A verb that is not followed by another word, as in a sentence, except by `in`: only files with one are parsed."""
MAX_WORDS = 6


def texts(*tops: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of all files of these folders."""
    for top in tops:
        for path in (ROOT / top).rglob("*.py"):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def test_public_class_names_are_unique() -> None:
    places = defaultdict(list)
    for file, text in texts(*SOURCES):
        for name in re.findall(r"^class ([^\W_]\w*)", text, re.MULTILINE):
            places[name].append(file)
    assert len(places) > 500
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_local_names_are_nouns() -> None:
    """Variables, parameters, fields and helpers are named after the value: row, message; not found, said, seen."""
    places = []
    with_verbs = ((file, text) for file, text in texts(*SOURCES, "tests") if VERB.search(text))
    for file, node in ((file, node) for file, text in with_verbs for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            name = node.attr
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ExceptHandler):
            name = node.name or ""
        else:
            continue
        if name.strip("_") in VERBS:
            places.append(f"{file}:{node.lineno}: {name}")  # type: ignore[attr-defined]
    assert not places, "name the value by a noun:\n" + "\n".join(sorted(places))


def test_test_names_are_short() -> None:
    """`test_<subject>_<case>`: the subject and what is expected of it."""
    names = [
        (file, name)
        for file, text in texts("tests")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE)
    ]
    assert len(names) > 2_000
    long = [f"{file}: {name}" for file, name in names if name.count("_") > MAX_WORDS]
    assert not long, f"name the test in at most {MAX_WORDS} words after test_:\n" + "\n".join(sorted(long))
