"""Names: a public class is found by searching for its name, and a local name says what the value is."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERBS = {"asked", "found", "own", "said", "seen", "told", "twin"}
UNCHECKED = (
    "flows/cli/commands.py",
    "ragen/config/rollout.py",
    "ragen/config/update.py",
    "ragen/core/lookup.py",
    "ragen/core/registry.py",
    "ragen/envs/game_2048/",
    "ragen/envs/metamath_qa/",
    "ragen/envs/sudoku/",
    "ragen/envs/suites/",
    "ragen/envs/webshop/",
    "ragen/learning/learners/",
    "ragen/methods/implicit_rewards/",
    "ragen/runs/placement.py",
    "ragen/runs/verify/",
    "ragen/sizing/",
    "ragen/store/",
    "schemas/",
    "tasks/",
)


def test_public_class_names_are_unique() -> None:
    places = defaultdict(list)
    for top in ("flows", "ragen", "schemas", "tasks"):
        for path in (ROOT / top).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_local_names_are_nouns() -> None:
    """Variables, parameters and fields are named after the value: row, message, states; not found, said, seen."""
    places = []
    for top in ("flows", "ragen", "schemas", "tasks"):
        for path in (ROOT / top).rglob("*.py"):
            file = str(path.relative_to(ROOT))
            for node in () if file.startswith(UNCHECKED) else ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    name: str | None = node.id
                elif isinstance(node, ast.arg):
                    name = node.arg
                elif isinstance(node, ast.ExceptHandler):
                    name = node.name
                else:
                    continue
                if name in VERBS:
                    places.append(f"{file}:{node.lineno}: {name}")
    assert not places, "name the value by a noun:\n" + "\n".join(sorted(places))
