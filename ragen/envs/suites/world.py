"""A game run by TextWorld: its text without banner and prompt, and readable names.

path -> World --`say`--> World

Only one game runs at a time: the package's parsers are shared, and while it translates PDDL it changes `sys.argv` and
`sys.stdout`. The package evaluates the expressions of a .tw-pddl game, so a game can execute arbitrary code.
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
"""Idle runners of .tw-pddl games, kept for reuse: each has its own copy of a library that cannot be unloaded safely."""


def library() -> Any:
    """Import the package.

    Raises:
        MissingPackageError: If the package or its planner for .tw-pddl games is not installed.
    """
    try:
        import fast_downward  # noqa: F401
        import textworld
    except ImportError as error:
        raise missing("alfworld", error) from error
    return textworld


class World:
    """A running game.

    Attributes:
        task: Task as the game states it at the start; "" if it states none.
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
        except (Exception, SystemExit) as error:  # its parsers may raise anything, and its translator exits
            raise EnvironmentFault(
                f"{path} cannot be played: {type(error).__name__}: {first_line(error)}; take it out of the folder"
            ) from error
        match = _TASK.search(self.text)
        self.task = match.group() if match else (self._state.objective or "").strip()

    @property
    def text(self) -> str:
        """Latest output of the game."""
        output = _PROMPT.sub("", _BANNER.sub("", self._state.feedback).strip()).strip()
        return _GAP.sub("\n\n", output)

    @property
    def admissible(self) -> tuple[str, ...]:
        """Currently admissible commands, as TextWorld sorts them; empty when the game is over."""
        return () if self.is_over else tuple(self._state.admissible_commands)

    @property
    def facts(self) -> list[str]:
        """All true facts, sorted, without the negations that PDDL games list too."""
        return sorted(str(fact) for fact in self._state.facts if not fact.is_negation)

    @property
    def is_won(self) -> bool:
        """Whether the goal has been reached."""
        return bool(self._state.won)

    @property
    def is_over(self) -> bool:
        """Whether the game is won or lost."""
        return bool(self._state.won or self._state.lost)

    def say(self, command: str) -> None:
        """Send a command, ignoring case; an unknown command changes nothing but the text."""
        known = {name.casefold(): name for name in self.admissible}
        with _alone():
            self._state, _, _ = self._game.step(known.get(command.casefold(), command))


def names_of(ids: Iterable[str]) -> dict[str, str]:
    """Map ids to names as ALFWorld writes them: `mug_bar__minus_01_dot_20...` becomes `mug 2`.

    Objects of a kind are numbered downwards in the order of their ids, as in ALFWorld without domain randomisation. An
    id without a position, and so without `_bar_`, gets no number.

    Args:
        ids: Ids of everything in a game.
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
