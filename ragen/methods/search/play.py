"""Rollout by search: every turn's response is the best of several, each executed on a copy of the environment.

    partial trajectories -> M candidates each -> (engine) -> respond on a copy -> score -> the best -> next turn

One loop implements all three methods: 'best_of' and 'lookahead' keep one partial trajectory per
trajectory, 'beam' keeps B. Candidates of one context differ only in their seeds, so the same shard gives the same rows.
The first candidate keeps the name of its parent, so that an engine can reuse the context it has cached; names of
candidates that were not selected are never used again, and a context that does not extend what the engine has under its
name is read from scratch.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request, RolloutSession, StreamingSession
from starpo.ragen.agents.rollout.episode import Episode, LiveEpisode, Row
from starpo.ragen.agents.rollout.loop import (
    prompt_with_room,
    request_of,
    respond_all,
    share_initial_digests,
    table_of,
    texts_of,
)
from starpo.ragen.agents.rollout.siblings import with_siblings
from starpo.ragen.agents.rollout.stream import as_stream
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.candidates import CandidatesConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.methods.search.settings import BeamConfig, LookaheadConfig

Score = Callable[[Sequence[Row]], float]
"""Rows of consecutive turns, none of which failed -> the larger, the better."""

_OF_THE_RESPONSE = ("response_ids", "behaviour_logprobs", "response", "executed_actions")


@dataclass
class _PartialTrajectory:
    """A partial trajectory.

    Attributes:
        live: The episode.
        name: Sequence id of its context in the engine.
        parent: Number of the candidate that it continues; -1 if there is none.
        number: Its number among the candidates of its last turn; -1 before the first turn.
        score: Score for comparison; None if the environment failed.
        path: For each turn with a response, the records of its candidates, and the number of the selected one.
    """

    live: LiveEpisode
    name: str
    parent: int = -1
    number: int = -1
    score: float | None = 0.0
    path: list[tuple[list[Row], int]] = field(default_factory=list)

    @property
    def has_spoken(self) -> bool:
        """Whether its last turn has a response."""
        return bool(self.live.rows) and self.live.rows[-1]["finish_reason"] != "none"


class _Search:
    """State shared by all rounds of one shard."""

    def __init__(
        self,
        session: RolloutSession | StreamingSession,
        contexts: ContextBuilder,
        tokenizer: PreTrainedTokenizerBase,
        sampling: SamplingConfig,
        max_context_tokens: int,
        search: CandidatesConfig,
        score: Score,
    ) -> None:
        self._stream = as_stream(session)
        self._contexts = contexts
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._max_context_tokens = max_context_tokens
        self._score_of = score
        self._num_candidates = search.num_candidates
        self._depth = search.depth if isinstance(search, LookaheadConfig) else 1
        self._is_beam = isinstance(search, BeamConfig)
        self._width = search.beam_width if isinstance(search, BeamConfig) else 1

    def play_turn(self, beams: list[list[_PartialTrajectory]]) -> list[list[_PartialTrajectory]]:
        """Continue every partial trajectory that is not over; those that are over remain and compete with the others.

        Args:
            beams: Partial trajectories of each trajectory, best first.

        Returns:
            The best partial trajectories after this turn, as many per trajectory as the method keeps.
        """
        requests: list[tuple[LiveEpisode, Request]] = []
        pools, grown = [], []
        for partials in beams:
            pool: list[_PartialTrajectory] = []
            candidates: list[_PartialTrajectory] = []
            for partial in partials:
                prompt_ids = None if partial.live.is_over else self._prompt(partial)
                if prompt_ids is None:
                    pool.append(partial)
                    continue
                continuations = list(self._candidates(partial, len(candidates)))
                requests += [
                    (candidate.live, request_of(candidate.live, candidate.name, prompt_ids, self._sampling))
                    for candidate in continuations
                    if not candidate.live.is_over
                ]
                candidates += continuations
                pool += continuations
            pools.append(pool)
            grown.append(candidates)
        self._answer(requests)
        self._score([candidate for candidates in grown for candidate in candidates])
        for candidates in grown:
            _note(candidates)
        return [sorted(pool, key=_place)[: self._width] for pool in pools]

    def _prompt(self, partial: _PartialTrajectory) -> list[int] | None:
        prompt_ids = prompt_with_room(partial.live, self._sampling, self._max_context_tokens)
        if prompt_ids is None and self._is_beam:  # the score includes the cost of forfeited actions
            partial.score = self._scored(partial.live.rows)
        return prompt_ids

    def _candidates(self, partial: _PartialTrajectory, first: int) -> Iterator[_PartialTrajectory]:
        for index in range(self._num_candidates):
            number, turn = first + index, partial.live.turn
            yield _PartialTrajectory(
                live=partial.live.branch("candidate", number),
                name=f"{partial.name}.{turn}:{index}" if index else partial.name,
                parent=partial.number,
                number=number,
                path=list(partial.path),
            )

    def _answer(self, requests: Sequence[tuple[LiveEpisode, Request]]) -> None:
        """Obtain the responses to all requests and execute them."""
        waiting = {request.sequence_id: episode for episode, request in requests}
        if requests:
            self._stream.submit([request for _, request in requests])
        while waiting:
            finished = self._stream.finished()
            texts = texts_of(self._tokenizer, finished, self._contexts.stop_token_ids)
            answered = []
            for (name, response), text in zip(finished, texts, strict=True):
                if name not in waiting:
                    raise EngineError(f"the engine answered sequence '{name}' twice, or without a request")
                answered.append((waiting.pop(name), response, text))
            respond_all(answered)

    def _score(self, candidates: Sequence[_PartialTrajectory]) -> None:
        """Score candidates, after playing the lookahead turns."""
        episodes = [candidate.live for candidate in candidates]
        if self._depth > 1:
            episodes = [live if live.is_over else live.branch("lookahead", 0) for live in episodes]
        for _ in range(self._depth - 1):
            requests = []
            for candidate, live in zip(candidates, episodes, strict=True):
                if live.is_over:
                    continue
                prompt_ids = prompt_with_room(live, self._sampling, self._max_context_tokens)
                if prompt_ids is not None:
                    requests.append((live, request_of(live, candidate.name, prompt_ids, self._sampling)))
            self._answer(requests)
        for candidate, live in zip(candidates, episodes, strict=True):
            first = 0 if self._is_beam else len(candidate.live.rows) - 1
            candidate.score = self._scored(live.rows[first:])

    def _scored(self, rows: Sequence[Row]) -> float | None:
        """Return the score of turns; None if the environment failed."""
        return None if any(row["status"] == "env_error" for row in rows) else self._score_of(rows)


def paid(rows: Sequence[Row]) -> float:
    """Return the environment's reward for turns, including the cost of forfeited actions."""
    total = 0.0
    for row in rows:
        given_up = row["actions_left"] if row["status"] == "truncated" else row["forfeited_actions"]
        total += sum(row["action_rewards"]) + given_up * row["action_cost"]
    return total + 0.0  # never -0.0


def play_searching(
    session: RolloutSession | StreamingSession,
    contexts: ContextBuilder,
    tokenizer: PreTrainedTokenizerBase,
    settings: EnvironmentSettings,
    agent: AgentConfig,
    sampling: SamplingConfig,
    max_context_tokens: int,
    episodes: Sequence[Episode],
    search: CandidatesConfig,
    deadline_s: float | None = None,
    score: Score = paid,
) -> pa.Table:
    """Play episodes to their ends as `loop.play` does, selecting each turn's response from several candidates.

    The arguments are those of `loop.play`, and `search`, which says how responses are selected, by their `score`.

    Returns:
        What `loop.play` returns, with each turn's siblings as an additional last column. Candidates of turns that the
        selected trajectory does not have are dropped.

    Raises:
        EngineError: If the engine does not answer every request, or log-probs do not align with tokens.
    """
    assert contexts.agent == agent, "the contexts were built for another agent"
    stop_at = None if deadline_s is None else time.monotonic() + deadline_s
    roots = [LiveEpisode(episode, make(settings, may_ask=True), contexts) for episode in episodes]
    share_initial_digests(roots)
    shard = _Search(session, contexts, tokenizer, sampling, max_context_tokens, search, score)
    beams = [[_PartialTrajectory(live, live.episode.trajectory_id)] for live in roots]
    while live := [one.live for partials in beams for one in partials if not one.live.is_over]:
        if stop_at is not None and time.monotonic() >= stop_at:
            for episode in live:
                episode.end_late()
            break
        beams = shard.play_turn(beams)
    chosen = [min(partials, key=_place) for partials in beams]
    rows = [row for partial in chosen for row in partial.live.rows]
    siblings = [competitors for partial in chosen for competitors in _siblings(partial)]
    return with_siblings(table_of(rows, agent.shows_images), siblings)


def _place(partial: _PartialTrajectory) -> tuple[bool, float]:
    """Sort key that puts the best first; sorting is stable, so ties go to the earlier one."""
    return partial.score is None, 0.0 if partial.score is None else -partial.score


def _note(candidates: list[_PartialTrajectory]) -> None:
    """Record, in every candidate of a trajectory's turn, the candidates that it competed with."""
    spoken = [candidate for candidate in candidates if candidate.has_spoken]
    competitors: list[Row] = [
        {
            **{name: candidate.live.rows[-1][name] for name in _OF_THE_RESPONSE},
            "candidate": candidate.number,
            "parent": candidate.parent,
            "score": candidate.score,
        }
        for candidate in spoken
    ]
    for candidate in spoken:
        same = [other for other in candidates if other.parent == candidate.parent]
        candidate.path.append((competitors, candidate.number))
        candidate.live.rows[-1] |= {
            "num_candidates": len(same),
            "num_as_good": sum(_place(other) <= _place(candidate) for other in same),
        }


def _siblings(partial: _PartialTrajectory) -> Iterator[list[Row]]:
    """Yield, for each of its rows, the candidates of that turn."""
    for turn, row in enumerate(partial.live.rows):
        competitors, taken = partial.path[turn] if row["origin"] == "search" else ([], -1)
        yield [{**candidate, "chosen": candidate["candidate"] == taken} for candidate in competitors]
