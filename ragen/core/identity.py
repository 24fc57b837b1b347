"""`code_identity`: what a name stands for, as a digest of the code behind it.

A result's key must stand for the code that made it, so for whatever settings look up by name the key holds this:

    "module:attribute" -> its definition, and the definitions that it refers to -> syntax trees -> digest

Sources are read and parsed, never imported. Comments, layout, docstrings and annotations change nothing. Definitions
are followed one by one into modules of the same package, of this project, and of folders outside of site-packages; an
added line elsewhere in a file changes nothing either. Of what is installed the distribution and its version count,
except of the libraries that this project itself requires: manifests name their versions, and keys do not. What code
reads from files, or looks up by a name that it puts together, is not seen: put it into a constant or a setting.
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
"""How the identity of code begins that has neither source nor version; see `is_reusable`."""

_PROJECT = "starpo"
_OPAQUE = ("starpo.ragen.core.lookup", "starpo.ragen.core.registry")
"""Modules that only look names up: what is found there has an identity of its own."""
_TOKEN = "RAGEN_CODE_TOKEN"


@cache
def code_identity(target: str) -> str:
    """The identity of some code: two results may share a key only if theirs are equal.

    Kept for the life of the process, since what it has imported stays what it was.

    Args:
        target: `module:attribute`, or `module` for all of it.

    Returns:
        16 hexadecimal digits of its source; where there is no source to read, `distribution==version`; where that is
        unknown too, a word that no other run has.
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
    """May a later run use what this code made? Not where nothing tells whether it is the same code then."""
    return not identity.startswith(UNREADABLE)


@dataclass
class _Closure:
    """The definitions that a target consists of.

    Attributes:
        package: Top-level package of the target, whose sources count wherever they are.
        lines: Definitions in the order of the walk, and which of them each name of theirs stands for.
        versions: `distribution==version` of what is installed and not followed.
        unknown: Modules of which neither source nor version is known.
    """

    package: str
    lines: list[str] = field(default_factory=list)
    versions: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    _numbers: dict[Place, int] = field(default_factory=dict)

    def add(self, module: str, attribute: str | None) -> str:
        """Take in a definition and all that it refers to; says how the line of who refers to it names it."""
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
            return self.add(module, None)  # made in a way that cannot be seen: all of the module counts
        number = self._numbers[place] = len(self._numbers)
        self.lines += [f"{number} {dump(statement)}" for statement in statements]
        imports = source.imports | local_imports(statements, module)
        for name in sorted({name for statement in statements for name in references(statement)}):
            target = self._referred(source, imports, name)
            if target:
                self.lines.append(f"{number} {name} {target}")
        return str(number)

    def _referred(self, source: Source, imports: Mapping[str, Place], name: str) -> str:
        """What a dotted name in a definition stands for; nothing where it is a local or a built-in name."""
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
        """A module's source if it is to be followed; else what stands for the module."""
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
    """Does it lie where distributions are installed, so that its version stands for it?"""
    origin = spec.origin if spec is not None else None
    return origin is None or bool({"site-packages", "dist-packages"} & set(Path(origin).parts))


@cache
def _distributions() -> dict[str, list[str]]:
    return {top: sorted(set(names)) for top, names in metadata.packages_distributions().items()}


def _versions(top: str) -> dict[str, str]:
    """Distribution -> version, of those that install a top-level package."""
    return {_normalised(name): metadata.version(name) for name in _distributions().get(top, [])}


@cache
def _requirements() -> frozenset[str]:
    """The libraries that this project requires, extras included; not those whose tasks are played."""
    try:
        required = metadata.requires("starpo") or []
    except metadata.PackageNotFoundError:
        required = []
    names = (re.match(r"[A-Za-z0-9._-]+", line) for line in required)
    return frozenset(_normalised(match.group()) for match in names if match) - set(SUITES.values())


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
