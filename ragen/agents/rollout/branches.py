"""Stored episodes, played again and continued from some of their turns.

    rows of `turns` -> Branches --begin--> stored responses again, compared -> LiveEpisode, one a continuation

The context and the state of the environment before a turn are those of the stored episode, as the same code makes them
from the same responses. From there every continuation plays on with random numbers of its own, which depend on its
number and the turn alone: the first continuation of one state has those of the first continuation of any other.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Response
from starpo.ragen.agents.rollout.episode import Episode, LiveEpisode, Row, describe_error
from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs.base import EnvironmentSettings

_MARKED = ("prompt_ids", "executed_actions", "action_rewards", "forfeited_actions", "state_digest")
"""Columns of `turns` by which a turn that is played again is compared with the stored one."""


@dataclass(frozen=True)
class Branches(Episode):
    """A stored episode, and the continuations to play from it; it begins as an episode of each.

    Attributes:
        responses: Of its turns, in order, as far as they are played again: token ids, finish reason, text, and the
            `mark_of` the stored turn.
        starts: Turns from which it is continued, ascending, with the numbers of the continuations: (turn, first, stop).
        seed: Of the random numbers of all continuations.
    """

    responses: Sequence[tuple[Sequence[int], Any, str, str]] = ()
    starts: Sequence[tuple[int, int, int]] = ()
    seed: int = 0

    def begin(self, settings: EnvironmentSettings, contexts: ContextBuilder) -> list[LiveEpisode]:
        """Return the continuations, in the order of turns and numbers.

        Raises:
            EnvironmentFault: If the stored episode, played again, differs from what is stored.
        """
        (live,) = super().begin(settings, contexts)
        return list(_continuations(live, self))


@dataclass(frozen=True)
class _Continuation(Episode):
    """A continuation of a stored episode.

    Attributes:
        start: Turn before which it begins.
        number: Its number among those from there.
    """

    start: int = 0
    number: int = 0

    @property
    def trajectory_id(self) -> str:
        return continuation_id(super().trajectory_id, self.start, self.number)

    def turn_seed(self, turn: int) -> int:
        return derive_seed(self.dynamics_seed, "turn", turn)


def continuation_id(trajectory_id: str, turn: int, number: int) -> str:
    """Return the trajectory id of a continuation of a trajectory from before a turn."""
    return f"{trajectory_id}/{turn}.{number}"


def mark_of(row: Row | Mapping[str, Any]) -> str:
    """Return a digest of what a turn showed and did, from its row of `turns`."""
    return hashlib.blake2b(json.dumps([row[name] for name in _MARKED]).encode(), digest_size=8).hexdigest()


def _continuations(live: LiveEpisode, stored: Branches) -> Iterator[LiveEpisode]:
    identity = {field.name: getattr(stored, field.name) for field in fields(Episode)}
    for turn, first, stop in stored.starts:
        for ids, finish_reason, text, mark in stored.responses[live.turn : turn]:
            _check(live, stored, not live.is_over)
            live.prompt()
            live.respond(Response(list(ids), [math.nan] * len(ids), finish_reason), text)
            _check(live, stored, mark_of(live.rows[-1]) == mark)
        _check(live, stored, not live.is_over)
        for number in range(first, stop):
            seeds = {
                name: derive_seed(stored.seed, "continuation", number, name)
                for name in ("dynamics_seed", "sampling_seed")
            }
            yield live.continue_as(_Continuation(**identity | seeds, start=turn, number=number))


def _check(live: LiveEpisode, stored: Branches, is_same: bool) -> None:
    if is_same:
        return
    last = live.rows[-1]
    what = describe_error(last["info"]) if last["status"] == "env_error" else f"now {quoted(last['executed_actions'])}"
    raise EnvironmentFault(
        f"trajectory {stored.trajectory_id}, played again, differs from what is stored in turn {last['turn']} "
        f"({what}): environment '{live.rows[-1]['env']}', prompts or parser have changed since"
    )
