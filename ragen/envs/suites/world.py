"""A game that TextWorld runs: its text without drawings and prompts, and names that can be said.

path -> World --`say`--> World

One game at a time moves: the package's parsers are shared, and while it translates PDDL it changes `sys.argv` and
`sys.stdout`. The expressions of a .tw-pddl game are evaluated by the package, so a game can do all that a program can.
"""

import re
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starpo.ragen.core.errors import EnvironmentFault, first_line
from starpo.ragen.envs.suites.suite import missing

_ONE = threading.Lock()
_SEED = 0
_BANNER = re.compile(r"\A(?s:.*)\$\$.*\n")
_PROMPT = re.compile(r"\n>[^\n]*\Z")
_GAP = re.compile(r"\n(?: *\n)+")
_TASK = re.compile(r"^Your task is to: .*$", re.MULTILINE)
_SIGNS = {"_minus_": "-", "_plus_": "+", "_dot_": ".", "_comma_": ","}
_idle: list[Any] = []
"""Runners of .tw-pddl games that nobody plays; the library that each has for itself cannot be unloaded safely."""


def library() -> Any:
    """The package.

    Raises:
        MissingPackageError: If it, or its planner for .tw-pddl games, is not installed.
    """
    try:
        import fast_downward  # noqa: F401
        import textworld
    except ImportError as error:
        raise missing("alfworld", error) from error
    return textworld


class World:
    """One game, begun.

    Attributes:
        task: What is to be done, as the game tells it at its beginning; "": it tells nothing of that kind.
    """

    def __init__(self, path: Path) -> None:
        """Begin a game.

        Raises:
            EnvironmentFault: If the package cannot play it.
            MissingPackageError: See `library`.
        """
        package = library()
        wanted = package.EnvInfos(admissible_commands=True, facts=True, objective=True, won=True, lost=True)
        try:
            with _alone():
                is_pddl = path.suffix == ".tw-pddl"
                if is_pddl and _idle:
                    self._game = _idle.pop()
                    self._game.load(str(path))
                else:
                    self._game = package.start(str(path), wanted)
                if is_pddl:
                    _rename(self._game._entity_infos.values())
                    weakref.finalize(self, _idle.append, self._game).atexit = False
                self._game.seed(_SEED)
                self._state = self._game.reset()
        except (Exception, SystemExit) as error:  # its parsers raise whatever they like, and its translator exits
            raise EnvironmentFault(
                f"{path} cannot be played: {type(error).__name__}: {first_line(error)}; take it out of the folder"
            ) from error
        told = _TASK.search(self.text)
        self.task = told.group() if told else (self._state.objective or "").strip()

    @property
    def text(self) -> str:
        """What the game said last."""
        said = _PROMPT.sub("", _BANNER.sub("", self._state.feedback).strip()).strip()
        return _GAP.sub("\n\n", said)

    @property
    def admissible(self) -> tuple[str, ...]:
        """The commands that do something now, sorted."""
        return () if self.is_over else tuple(self._state.admissible_commands)

    @property
    def facts(self) -> list[str]:
        """All that is the case, sorted; what has ceased to be, which PDDL games note too, is left out."""
        return sorted(str(fact) for fact in self._state.facts if not fact.is_negation)

    @property
    def is_won(self) -> bool:
        """Has the goal been reached?"""
        return bool(self._state.won)

    @property
    def is_over(self) -> bool:
        """Has the goal been reached, or lost for good?"""
        return bool(self._state.won or self._state.lost)

    def say(self, command: str) -> None:
        """Give a command, in any case; what the game does not know changes nothing but its text."""
        known = {name.casefold(): name for name in self.admissible}
        with _alone():
            self._state, _, _ = self._game.step(known.get(command.casefold(), command))


def names_of(ids: Iterable[str]) -> dict[str, str]:
    """Names as ALFWorld says them: `mug_bar__minus_01_dot_20...` is `mug 2`.

    Those of a kind are counted down in the order of their ids, as in ALFWorld without domain randomisation. What has
    no place in its id, and so no `_bar_`, keeps it for a name.

    Args:
        ids: Of everything in a game.
    """
    kinds = {name: _kind(name) for name in sorted(ids)}
    left = Counter(kinds.values())
    names = {}
    for name, kind in kinds.items():
        names[name] = f"{kind} {left[kind]}" if "_bar_" in name else kind
        left[kind] -= 1
    return names


def _kind(name: str) -> str:
    kind, place, _ = name.partition("_bar_")
    if place:
        return f"{kind}basin" if "basin" in name else kind
    for written, sign in _SIGNS.items():
        kind = kind.replace(written, sign)
    return kind


def _rename(entities: Iterable[Any]) -> None:
    entities = list(entities)
    names = names_of(entity.id for entity in entities)
    for entity in entities:
        entity.name = names[entity.id]


@contextmanager
def _alone() -> Iterator[None]:
    with _ONE:
        arguments = sys.argv
        try:
            yield
        finally:
            sys.argv = arguments
