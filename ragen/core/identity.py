"""`code_identity`: a digest of the code that a name resolves to.

A cache key must identify the code that made the result, so it includes this digest for everything that settings look up
by name:

    "module:attribute" -> its definition, and the definitions that it refers to -> syntax trees -> digest

Sources are read and parsed, never imported. Comments, layout, docstrings and annotations have no effect. Definitions
are followed one by one into modules of the same package, of this project, and of folders outside site-packages; a line
added elsewhere in a file has no effect either. Installed code counts by distribution and version, except the libraries
that this project itself requires: manifests record their versions, keys do not. What code reads from files, or looks up
by a computed name, is not seen: put it into a constant or a setting.
"""

import hashlib
import os
import re
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path

from starpo.ragen.core.definitions import Place, Source, dump, find_spec, local_imports, read, references
from starpo.ragen.core.registry import SUITES

DIGITS = 16
"""Hexadecimal digits of an identity: 64 bits."""

UNREADABLE = "unreadable:"
"""Prefix of the identity of code that has neither source nor version; see `is_reusable`."""

_PROJECT = "starpo"
_OPAQUE = ("starpo.ragen.core.lookup", "starpo.ragen.core.registry")
"""Modules that only look up names: what they return has an identity of its own."""
_TOKEN = "RAGEN_CODE_TOKEN"


@cache
def code_identity(target: str) -> str:
    """Return the identity of some code: two results may share a key only if their identities are equal.

    Cached for the life of the process, since modules that are already imported do not change.

    Args:
        target: `module:attribute`, or `module` for the whole module.

    Returns:
        16 hexadecimal digits of its source; without a readable source, `distribution==version`; if that is unknown too,
        a token that is unique to the run.
    """
    module, _, attribute = target.partition(":")
    closure = _Closure(module.partition(".")[0])
    closure.add(module, attribute or None)
    if closure.unknown:
        return UNREADABLE + os.environ.setdefault(_TOKEN, uuid.uuid4().hex)
    if not closure.lines:
        return " ".join(sorted(closure.versions))
    text = "\n".join([*closure.lines, *sorted(closure.versions)])
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def is_reusable(identity: str) -> bool:
    """Whether a later run may reuse results of this code; not if there is no way to tell that the code is the same."""
    return not identity.startswith(UNREADABLE)


@dataclass
class _Closure:
    """The definitions that a target consists of.

    Attributes:
        package: Top-level package of the target, whose sources count wherever they are installed.
        lines: Definitions in traversal order, and which definition each name in them resolves to.
        versions: `distribution==version` of installed code that is not followed.
        unknown: Modules with neither a known source nor a known version.
    """

    package: str
    lines: list[str] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    _numbers: dict[Place, int] = field(default_factory=dict)

    def add(self, module: str, attribute: str | None) -> str:
        """Add a definition and everything that it refers to; return the label by which a referring line names it."""
        place = (module, attribute)
        if place in self._numbers:
            return str(self._numbers[place])
        source = self._source(module)
        if not isinstance(source, Source):
            return source
        statements = source.whole if attribute is None else source.definitions.get(attribute, [])
        if attribute is not None and not statements:
            found = source.imported(attribute)
            if found is not None:
                return self.add(*found)
            if find_spec(f"{module}.{attribute}") is not None:
                return self.add(f"{module}.{attribute}", None)
            return self.add(module, None)  # defined dynamically: the whole module counts
        number = self._numbers[place] = len(self._numbers)
        self.lines += [f"{number} {dump(statement)}" for statement in statements]
        imports = source.imports | local_imports(statements, module)
        for name in sorted({name for statement in statements for name in references(statement)}):
            target = self._referred(source, imports, name)
            if target:
                self.lines.append(f"{number} {name} {target}")
        return str(number)

    def _referred(self, source: Source, imports: Mapping[str, Place], name: str) -> str:
        """Resolve a dotted name in a definition to its label; empty for a local or a built-in name."""
        first, *rest = name.split(".")
        if first in source.definitions:
            return self.add(source.name, first)
        imported = imports.get(first) or source.imported(first)
        if imported is None:
            return ""
        module, attribute = imported
        while rest and (attribute is None or find_spec(f"{module}.{attribute}") is not None):
            module, attribute = (module if attribute is None else f"{module}.{attribute}"), rest.pop(0)
        return self.add(module, attribute)

    def _source(self, module: str) -> Source | str:
        """Return a module's source if it is to be followed; otherwise a label for the module."""
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names or module in _OPAQUE:
            return ""
        spec, is_own = find_spec(module), top in (self.package, _PROJECT)
        if is_own or not _is_installed(spec):
            source = read(module)
            if source is not None:
                return source
        versions = _versions(top)
        if not versions:
            self.unknown.add(module)
        elif is_own or not versions.keys() <= _requirements():
            self.versions |= {f"{name}=={version}" for name, version in versions.items()}
        return top


def _is_installed(spec: ModuleSpec | None) -> bool:
    """Whether a module is installed as a distribution, so that its version identifies it."""
    origin = spec.origin if spec is not None else None
    return origin is None or bool({"site-packages", "dist-packages"} & set(Path(origin).parts))


@cache
def _distributions() -> dict[str, list[str]]:
    return {top: sorted(set(names)) for top, names in metadata.packages_distributions().items()}


def _versions(top: str) -> dict[str, str]:
    """Return distribution -> version for the distributions that provide a top-level package."""
    return {_normalised(name): metadata.version(name) for name in _distributions().get(top, [])}


@cache
def _requirements() -> frozenset[str]:
    """Return the libraries that this project requires, extras included, environment suites excluded."""
    try:
        required = metadata.requires("starpo") or []
    except metadata.PackageNotFoundError:
        required = []
    names = (re.match(r"[A-Za-z0-9._-]+", line) for line in required)
    return frozenset(_normalised(match.group()) for match in names if match) - set(SUITES.values())


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
