"""`code_identity`: a digest of the code that a name resolves to.

A cache key must identify the code that made the result, so it includes this digest for everything that settings look up
by name:

    "module:attribute" -> its module, and all of one's own that it imports -> tokens -> digest

The unit is the module: whatever a module says may decide what a name in it means (decorators, base classes, tables that
are filled, imports for their effect, docstrings). So all of its text counts, comments and layout aside, and all modules
of one's own that it imports anywhere, with the `__init__` of the packages on the way. Nothing is imported for this.

Installed distributions count by name and version. Of this project, the floors in `_FLOORS` stand under the stages'
versions and the golden tests, as engines and learners do, and docstrings have no effect; the libraries that it requires
are recorded in manifests and are in no key. What code reads from files, or imports by a computed name, is not seen: put
it into a constant or a setting.
"""

import hashlib
import os
import sys
import uuid
from functools import cache

from starpo.ragen.core.registry import SUITES
from starpo.ragen.core.sources import find, installed, is_standard, read

DIGITS = 16
"""Hexadecimal digits of an identity: 64 bits."""

UNREADABLE = "unreadable:"
"""Prefix of the identity of code that has neither source nor file; see `is_reusable`."""

_PROJECT = "starpo"
_FLOORS = ("starpo.ragen.core.", "starpo.ragen.config.", "starpo.ragen.store.", "starpo.schemas.")
"""Packages of this project that are not followed: no method of its own, and values of settings are in keys anyway."""
_SUITES = {*SUITES, *(name.replace("-", "_") for name in SUITES.values())}
"""Top-level packages that count where modules of this project import them."""
_TOKEN = "STARPO_CODE_TOKEN"


@cache
def code_identity(target: str) -> str:
    """Return the identity of some code: two results may share a key only if their identities are equal.

    Cached for the life of the process, since modules that are already imported do not change.

    Args:
        target: `module:attribute`, or `module` for the whole module. Its own top-level package is read as text even
            where it is installed: the version of a package under development often stays.

    Returns:
        16 hexadecimal digits; if a module has neither source nor file, a token that is unique to the run.
    """
    module, _, attribute = target.partition(":")
    if read(module) is None:
        return _unreadable()
    followed = (_PROJECT, _top(module))
    parts: set[str] = set()
    visited: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        top = _top(name)
        if name in visited or is_standard(top) or f"{name}.".startswith(_FLOORS):
            continue
        visited.add(name)
        version = None if top in followed else installed(name)
        if version is not None:
            parts.add(version)
            continue
        source = read(name)
        if source is None:
            if find(name) is not None or name in sys.modules:
                return _unreadable()
            parts.add(f"{name} missing")
        elif top == _PROJECT:
            parts.add(f"{name} {source.code}")
            waiting += [other for other in source.imports if _top(other) in (_PROJECT, *_SUITES)]
        else:
            parts.add(f"{name} {source.text}")
            waiting += source.imports
        if "." in name and top != _PROJECT:
            waiting.append(name.rpartition(".")[0])
    text = "\n\n".join([f"{module}:{attribute}", *sorted(parts)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def is_reusable(identity: str) -> bool:
    """Whether a later run may reuse results of this code; not if there is no way to tell that the code is the same."""
    return not identity.startswith(UNREADABLE)


def _unreadable() -> str:
    return UNREADABLE + os.environ.setdefault(_TOKEN, uuid.uuid4().hex)


def _top(module: str) -> str:
    return module.partition(".")[0]
