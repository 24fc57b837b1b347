"""An initial state of a panel wherever it was played: at every checkpoint of a run, and in other runs.

evaluations, of which the columns that identify an episode and say how it ended -> PanelStates -> JSON
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from starpo.ragen.core.errors import StarPOError, StoreError
from starpo.ragen.evidence.reading import Place, hashed_table, places, side_by_side
from starpo.ragen.evidence.report.evaluations import cell_of, episode_names
from starpo.ragen.evidence.view.reading import Kept, StoreReader

Row = dict[str, Any]
T = TypeVar("T")

_MAX_EVALUATIONS = 1_000
"""Evaluations whose outcomes are kept, some kilobytes each."""
_COLUMNS = ("env_seed", "member", "initial_state_digest", "success", "episode_return")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class EpisodeName:
    """An episode of an evaluation, as pages name it.

    Attributes:
        iteration: Number of updates done before the evaluation.
        source: Name of the evaluation.
        trajectory: Name of the episode.
    """

    iteration: int
    source: str
    trajectory: str


class _State(NamedTuple):
    """What episodes share that began alike; the member is the sample from it."""

    seed: int
    member: int
    digest: str


class PanelStates:
    """Follows an episode's initial state over evaluations; any number of threads may ask.

    Args:
        reader: Reads the runs of its store.
    """

    def __init__(self, reader: StoreReader) -> None:
        self._reader, self._store = reader, reader.store
        self._tables = Kept(_MAX_EVALUATIONS)

    def checkpoints(self, run: str, episode: EpisodeName) -> dict[str, Any]:
        """Return how the same state was played at every checkpoint of the run.

        Returns:
            JSON: `episodes`, by iteration: iteration, trajectory, success, return; `unread`, iterations whose
            evaluation cannot be read.

        Raises:
            StoreError: If there is no such run, evaluation or episode, or it cannot be read.
        """
        state = self._state_of(run, episode)
        evaluations = {place.iteration: place for place in self._evaluations_of(run, episode.source)}
        return self._episodes(evaluations, lambda iteration: self._played(evaluations[iteration], state))

    def other_runs(self, run: str, episode: EpisodeName) -> dict[str, Any]:
        """Return how the same state was played in each other run that evaluated it, at the nearest checkpoint.

        Returns:
            JSON: `episodes`, by name of the run: run, iteration, trajectory, success, return; `unread`, runs of which
            no evaluation of that name can be read.

        Raises:
            StoreError: As `checkpoints`.
        """
        state = self._state_of(run, episode)

        def play(name: str) -> Row | None:
            fault: StarPOError | None = None
            evaluations = self._evaluations_of(name, episode.source)
            for place in sorted(evaluations, key=lambda place: abs(place.iteration - episode.iteration)):
                try:
                    row = self._played(place, state)
                except StarPOError as error:
                    fault = error
                else:  # the panel of a run is the same at each of its checkpoints
                    return {"run": name, **row} if row else None
            if fault:
                raise fault
            return None

        return self._episodes([name for name in self._store.runs.names() if name != run], play)

    def _episodes(self, names: Collection[T], play: Callable[[T], Row | None]) -> dict[str, Any]:
        """Return how the state was played wherever it was, and the names of what cannot be read."""

        def attempt(name: T) -> Row | StarPOError | None:
            try:
                return play(name)
            except StarPOError as error:
                return error

        played = list(zip(names, side_by_side(self._store, attempt, names), strict=True))
        return {
            "episodes": [row for _, row in played if isinstance(row, dict)],
            "unread": [name for name, row in played if isinstance(row, StarPOError)],
        }

    def _state_of(self, run: str, episode: EpisodeName) -> _State:
        for place in self._evaluations_of(run, episode.source):
            if place.iteration == episode.iteration:
                for state, row in _rows(self._outcomes(place.key)):
                    if row["trajectory"] == episode.trajectory:
                        return state
                raise StoreError(
                    f"evaluation {episode.source} of run {run} at iteration {episode.iteration} has no episode "
                    f"{episode.trajectory}"
                )
        raise StoreError(f"run {run} has no evaluation {episode.source} at iteration {episode.iteration}")

    def _played(self, place: Place, state: _State) -> Row | None:
        """Return how an evaluation played the state; None if its panel does not have it."""
        return next(
            (
                {"iteration": place.iteration, **row}
                for other, row in _rows(self._outcomes(place.key))
                if other == state
            ),
            None,
        )

    def _evaluations_of(self, run: str, cell: str) -> list[Place]:
        known = places(self._reader.iterations(self._store.runs.get(run), self._reader.version(run)))
        return [place for place in known if place.kind == "episodes" and cell_of(place) == cell]

    def _outcomes(self, key: str) -> pa.Table:
        """Read the episodes' columns without their texts, in the order of the panel."""
        table: pa.Table = self._tables.get(
            key, lambda: hashed_table(self._store, self._store.manifest("episodes", key), _COLUMNS)
        )
        return table


def _rows(table: pa.Table) -> Iterator[tuple[_State, Row]]:
    seeds, members, digests, successes, returns = (table[name].to_pylist() for name in _COLUMNS)
    names = episode_names(seeds, members)
    for seed, member, digest, name, success, value in zip(
        seeds, members, digests, names, successes, returns, strict=True
    ):
        yield _State(seed, member, digest), {"trajectory": name, "success": success, "return": value}
