"""One class, one name: whoever searches for a public class finds one."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_public_class_names_are_unique() -> None:
    places = defaultdict(list)
    for top in ("flows", "ragen", "schemas", "tasks"):
        for path in (ROOT / top).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
