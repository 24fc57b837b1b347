"""Python modules as parsed sources: which statements define a name, which names they refer to, and a canonical dump.

    module -> `read` -> Source: definitions, imports          statement -> `references`, `dump`

Only the parent packages of a module are imported.
"""

import ast
import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from threading import Lock

Place = tuple[str, str | None]
"""A module and the name of a definition in it; None for the whole module."""


@dataclass(frozen=True)
class Source:
    """A parsed module.

    Attributes:
        name: Name of the module.
        whole: Its statements, without docstrings and annotations.
        definitions: Name -> the top-level statements that bind or modify it, imports excluded.
        imports: Name -> module and attribute; attribute None for the module itself.
        stars: Modules imported with `from ... import *`.
    """

    name: str
    whole: list[ast.stmt]
    definitions: dict[str, list[ast.stmt]]
    imports: dict[str, Place]
    stars: tuple[str, ...]

    def imported(self, name: str) -> Place | None:
        """Return where an imported name comes from; None if it is not imported.

        Of several star imports, the one that leads to a module with that name in the fewest steps: following them ends,
        even if modules import everything from each other.
        """
        if name in self.imports:
            return self.imports[name]
        asked = {self.name}
        reached = [(star, star) for star in self.stars]  # with the star import that leads there; the nearest first
        for star, module in reached:
            source = read(module) if module not in asked else None
            asked.add(module)
            if source is not None:
                if name in source.definitions or name in source.imports:
                    return star, name
                reached += [(star, further) for further in source.stars]
        return None


@cache
def read(module: str) -> Source | None:
    """Parse a module; None if there is no such module or its source is not available."""
    text = _text(module)
    if text is None:
        return None
    try:
        tree = _Meaning().visit(_parse(text))
    except SyntaxError:  # reported when the module is imported
        return None
    definitions: dict[str, list[ast.stmt]] = {}
    imports: dict[str, Place] = {}
    stars: list[str] = []
    for statement in tree.body:
        for node in _executed(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports |= _imports(node, module)
                if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                    stars.append(_origin(node, module))
        for name in _bound(statement):
            definitions.setdefault(name, []).append(statement)
    return Source(module, tree.body, definitions, imports, tuple(stars))


_PARSING = Lock()


def _parse(text: str) -> ast.Module:
    """Parse a source text in one thread at a time, as Python 3.11 raises SystemError if two build syntax trees."""
    with _PARSING:
        for _ in range(8):
            with suppress(SystemError):  # another library parsed in another thread
                return ast.parse(text)
        return ast.parse(text)


class _Meaning(ast.NodeTransformer):
    """Removes from a syntax tree what cannot change a result: docstrings and annotations."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        self.generic_visit(node)
        return None if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str) else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._with_body(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self._with_body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._with_body(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        node.annotation = ast.Constant(None)
        return node

    def _with_body(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node


def dump(node: object) -> str:
    """Dump a syntax tree as text that is the same in every version of Python; omits empty and derivable fields."""
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if name not in ("ctx", "kind", "type_comment"))
        inner = ", ".join(f"{name}={dump(value)}" for name, value in fields if value is not None and value != [])
        return f"{type(node).__name__}({inner})"
    return f"[{', '.join(map(dump, node))}]" if isinstance(node, list) else repr(node)


def references(node: ast.AST) -> Iterator[str]:
    """Yield the names that a definition reads, dotted where attributes of them are read."""
    parts: list[str] = []
    root = node
    while isinstance(root, ast.Attribute):
        parts.append(root.attr)
        root = root.value
    if isinstance(root, ast.Name):
        if isinstance(root.ctx, ast.Load):
            yield ".".join([root.id, *reversed(parts)])
        return
    for child in ast.iter_child_nodes(root):
        yield from references(child)


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a top-level statement defines or modifies in place."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {statement.name}
        case ast.Import() | ast.ImportFrom():
            return set()
        case ast.Expr():  # such as REGISTRY.update(...)
            return {name.partition(".")[0] for name in references(statement) if "." in name}
    return {name for inner in _inner(statement) for name in _bound(inner)} | _stored(statement)


def _executed(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield a top-level statement and all statements in its blocks, not those in functions and classes."""
    yield statement
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        for inner in _inner(statement):
            yield from _executed(inner)


def _inner(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements directly in the blocks of a compound statement: branches, handlers, cases."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _inner(child)


def _stored(statement: ast.stmt) -> set[str]:
    """Return the names that are assigned to, directly or through their items or attributes."""
    names = {
        node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    for node in ast.walk(statement):
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            value = node.value
            while isinstance(value, ast.Subscript | ast.Attribute):
                value = value.value
            if isinstance(value, ast.Name):
                names.add(value.id)
    return names


def local_imports(statements: list[ast.stmt], module: str) -> dict[str, Place]:
    """Return the imports inside definitions, as name -> place."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    found = (_imports(node, module) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    return {name: place for names in found for name, place in names.items()}


def _imports(node: ast.Import | ast.ImportFrom, module: str) -> dict[str, Place]:
    """Return name -> module and attribute for one import statement."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]: (
                alias.name if alias.asname else alias.name.partition(".")[0],
                None,
            )
            for alias in node.names
        }
    origin = _origin(node, module)
    return {alias.asname or alias.name: (origin, alias.name) for alias in node.names if alias.name != "*"}


def _origin(node: ast.ImportFrom, module: str) -> str:
    """Resolve the module that a `from ... import` inside `module` refers to."""
    if not node.level:
        return node.module or ""
    spec = find_spec(module)
    is_package = spec is not None and spec.submodule_search_locations is not None
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _text(module: str) -> str | None:
    spec = find_spec(module)
    if spec is None or spec.loader is None:
        return None
    get_source = getattr(spec.loader, "get_source", None)
    try:
        text: str | None = get_source(module) if get_source is not None else None
    except (ImportError, OSError, UnicodeDecodeError, SyntaxError):
        return None
    return text


@cache
def find_spec(module: str) -> ModuleSpec | None:
    """Return the import spec of a module; None if there is no such module."""
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
