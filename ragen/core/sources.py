"""Python modules as text: where a module lies, what it says without comments and layout, and what it imports.

    module -> `find` -> spec -> `read` -> Source: text, imports
                             -> `installed` -> the distribution that it belongs to

Nothing is imported, not even the packages that a module lies in: their code may do anything.
"""

import io
import json
import os
import sys
import tokenize
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec
from itertools import takewhile
from pathlib import Path

_BUILDS = ("pyproject.toml", "setup.py", "setup.cfg")
_LEFT_OUT = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
_BLOCKS = {tokenize.INDENT: "\t+", tokenize.DEDENT: "\t-"}
_STATEMENT_ENDS = (";", ":", *_BLOCKS.values())


@dataclass(frozen=True)
class Source:
    """A module's text.

    Attributes:
        text: Its tokens, without comments and layout; the plain text if it is not valid Python.
        code: The same without statements that are a string alone, as docstrings are.
        imports: Full names of what it imports, anywhere in it; some are attributes of modules, not modules.
    """

    text: str
    code: str
    imports: tuple[str, ...]


@cache
def find(module: str) -> ModuleSpec | None:
    """Return the spec of a module without importing its packages; None if there is no such module."""
    parent, _, name = module.rpartition(".")
    path = None
    if parent:
        package = find(parent)
        if package is None or package.submodule_search_locations is None:
            return None
        path = list(package.submodule_search_locations)
    for finder in sys.meta_path:
        # KeyError: the standard finder looks a nested package without `__init__` up in its parent, not imported yet.
        with suppress(ImportError, KeyError, ValueError, AttributeError):
            spec = finder.find_spec(module, path)
            if spec is not None:
                return spec
    folders = [str(folder) for place in path or () if (folder := Path(place, name)).is_dir()]
    if not folders:
        return None
    spec = ModuleSpec(module, None, is_package=True)
    spec.submodule_search_locations = folders
    return spec


@cache
def read(module: str) -> Source | None:
    """Read a module; compiled code counts by its bytes. None if there is neither source nor file, as in memory."""
    spec = find(module)
    if spec is None:
        return None
    if spec.loader is None or spec.origin is None:  # a package without `__init__`
        return Source("", "", ())
    text = None
    with suppress(ImportError, OSError, UnicodeDecodeError, SyntaxError, AttributeError):
        text = spec.loader.get_source(module)  # type: ignore[attr-defined]
    if text is None:
        try:
            compiled = Path(spec.origin).read_bytes().hex()
        except OSError:
            return None
        return Source(compiled, compiled, ())
    is_package = spec.submodule_search_locations is not None
    package = module if is_package else module.rpartition(".")[0]
    try:
        lines = list(_lines(text))
    except (SyntaxError, tokenize.TokenError):  # reported when the module is imported
        return Source(text, text, ())
    imports = dict.fromkeys(name for words, _ in lines for name in _imported(words, package))
    coded = ([word for word in words if not is_string or word in _BLOCKS.values()] for words, is_string in lines)
    return Source(_joined(words for words, _ in lines), _joined(coded), tuple(imports))


def _joined(lines: Iterable[list[str]]) -> str:
    return "\n".join("\0".join(words) for words in lines)


def _lines(text: str) -> Iterator[tuple[list[str], bool]]:
    """Yield each logical line: its tokens, and whether it is a string alone."""
    words: list[str] = []
    is_string = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NEWLINE:
            yield words, is_string
            words, is_string = [], True
        elif token.type not in _LEFT_OUT:
            words.append(_BLOCKS.get(token.type, token.string))
            is_string &= token.type in (tokenize.STRING, *_BLOCKS)


def _imported(words: list[str], package: str) -> Iterator[str]:
    """Yield the full names that a logical line imports, by a statement or by a call with a literal name."""
    for at, word in enumerate(words):
        if word == "import":
            names = takewhile(lambda other: other != ";", words[at + 1 :])
            listed = "".join(f" {name} " if name == "as" else name for name in names).strip("()").split(",")
            imported = [name.partition(" ")[0] for name in listed if name]
            statement = list(takewhile(lambda other: other not in _STATEMENT_ENDS, reversed(words[:at])))
            if statement[-1:] != ["from"]:
                yield from imported
                continue
            origin = _absolute("".join(reversed(statement[:-1])), package)
            yield origin
            yield from (f"{origin}.{name}" for name in imported if name != "*")
        elif word in ("import_module", "__import__") and words[at + 1 : at + 2] == ["("]:
            name = words[at + 2].lstrip("rRuU").strip("\"'") if words[at + 2][-1] in "\"'" else ""
            if name.strip(".").replace(".", "").isidentifier():
                yield _absolute(name, package)


def _absolute(name: str, package: str) -> str:
    """Resolve the leading dots of a name that is used in a package."""
    rest = name.lstrip(".")
    num_dots = len(name) - len(rest)
    if not num_dots:
        return name
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - num_dots + 1], *([rest] if rest else [])])


@cache
def is_standard(top: str) -> bool:
    """Whether a top-level module is the standard library's own, not a file of that name in front of it."""
    if top not in sys.stdlib_module_names:
        return False
    origin = (spec := find(top)) and spec.origin
    if origin in (None, "built-in", "frozen"):
        return True
    path = os.path.relpath(str(origin), Path(os.__file__).parent)
    return path.partition(os.sep)[0] not in ("..", "site-packages", "dist-packages")


@cache
def installed(module: str) -> str | None:
    """Return `name==version` of the installed distribution that has a module, wherever it lies.

    None if there is none: a checkout, a folder of one's own, or an editable installation.
    """
    top = module.partition(".")[0]
    spec = find(top)
    if spec is not None and spec.origin is None:  # several distributions may share it
        spec = find(module)
    if spec is None or spec.origin is None:
        return None
    for name in _distributions().get(top, ()):
        distribution = metadata.distribution(name)
        if _has(distribution, spec.origin):
            return f"{distribution.metadata['Name']}=={distribution.version}"
    return None


@cache
def _distributions() -> dict[str, list[str]]:
    return {top: sorted(set(names)) for top, names in metadata.packages_distributions().items()}


def _has(distribution: metadata.Distribution, file: str) -> bool:
    """Whether a distribution has installed this file: its RECORD says so, or it lies beside it, in no source tree."""
    if json.loads(distribution.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable"):
        return False
    folder = str(distribution.locate_file(""))
    path = os.path.relpath(file, folder).replace(os.sep, "/")
    record = distribution.read_text("RECORD")
    if record is None:  # as the packages of some systems
        return not path.startswith("..") and not any(Path(folder, name).exists() for name in _BUILDS)
    return any(line.startswith((f"{path},", f'"{path}"')) for line in record.splitlines())
