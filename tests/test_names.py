"""Names: a public class is found by searching for its name, a local name says what the value is, a test's is short."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("flows", "ragen", "schemas", "tasks")
VERBS = {"asked", "found", "own", "said", "seen", "told", "twin"}
MAX_WORDS = 6


def nodes(*tops: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield file and node of all syntax trees of these folders."""
    for top in tops:
        for path in (ROOT / top).rglob("*.py"):
            file = path.relative_to(ROOT).as_posix()
            yield from ((file, node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def test_public_class_names_are_unique() -> None:
    places = defaultdict(list)
    for top in SOURCES:
        for path in (ROOT / top).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_local_names_are_nouns() -> None:
    """Variables, parameters, fields and helpers are named after the value: row, message; not found, said, seen."""
    places = []
    for file, node in nodes(*SOURCES, "tests"):
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
    long = [
        f"{file}:{node.lineno}: {node.name}"
        for file, node in nodes("tests")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if node.name.count("_") > MAX_WORDS
    ]
    assert not long, f"name the test in at most {MAX_WORDS} words after test_:\n" + "\n".join(sorted(long))
