"""Rollout by search: every turn's response is the best of several, each carried out on a copy of the environment.

    beginnings -> M candidates each -> (engine) -> respond on a copy -> score -> the best beginnings -> next turn

One loop has all three ways: 'best_of' and 'lookahead' keep one beginning a trajectory, 'beam' keeps B. Candidates of
one context differ in their seeds alone, so the same shard gives the same rows. The first candidate has the name of what
it goes on from, so that an engine finds the context that it has read; what was not chosen is a name that nobody asks
for again, and where a context does not go on from what the engine keeps under its name it is read anew.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request, RolloutSession, StreamingSession
from starpo.ragen.agents.rollout.episode import Episode, LiveEpisode, Row
from starpo.ragen.agents.rollout.loop import prompt_with_room, request_of, share_initial_digests, table_of, texts_of
from starpo.ragen.agents.rollout.siblings import with_siblings
from starpo.ragen.agents.rollout.stream import as_stream
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.search import BeamConfig, LookaheadConfig, SearchConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings

_OF_THE_RESPONSE = ("response_ids", "behaviour_logprobs", "response", "executed_actions")


@dataclass
class _Beginning:
    """A trajectory as far as it was played.

    Attributes:
        live: The episode.
        name: Under which the engine knows its context.
        parent: Number of the candidate that it goes on from; -1: there is none.
        number: Among the candidates of its last turn; -1 before the first.
        score: What it is compared by; None: the environment failed.
        path: For each turn with a response, what is told of its candidates, and the number of the one that was taken.
    """

    live: LiveEpisode
    name: str
    parent: int = -1
    number: int = -1
    score: float | None = 0.0
    path: list[tuple[list[Row], int]] = field(default_factory=list)

    @property
    def has_spoken(self) -> bool:
        """Has its last turn a response?"""
        return bool(self.live.rows) and self.live.rows[-1]["finish_reason"] != "none"


class _Search:
    """What all rounds of one shard have in common."""

    def __init__(
        self,
        session: RolloutSession | StreamingSession,
        contexts: ContextBuilder,
        tokenizer: PreTrainedTokenizerBase,
        sampling: SamplingConfig,
        max_context_tokens: int,
        search: SearchConfig,
    ) -> None:
        self._stream = as_stream(session)
        self._contexts = contexts
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._max_context_tokens = max_context_tokens
        self._num_candidates = search.num_candidates
        self._depth = search.depth if isinstance(search, LookaheadConfig) else 1
        self._is_beam = isinstance(search, BeamConfig)
        self._width = search.beam_width if isinstance(search, BeamConfig) else 1

    def play_turn(self, beams: list[list[_Beginning]]) -> list[list[_Beginning]]:
        """Go on with every beginning that is not over; what is over stays, and is compared with the others.

        Args:
            beams: Beginnings of each trajectory, the best first.

        Returns:
            The best of what became of them, as many of each trajectory as are kept.
        """
        requests: list[tuple[LiveEpisode, Request]] = []
        pools, grown = [], []
        for beginnings in beams:
            pool: list[_Beginning] = []
            candidates: list[_Beginning] = []
            for beginning in beginnings:
                prompt_ids = None if beginning.live.is_over else self._prompt(beginning)
                if prompt_ids is None:
                    pool.append(beginning)
                    continue
                own = list(self._candidates(beginning, len(candidates)))
                requests += [
                    (candidate.live, request_of(candidate.live, candidate.name, prompt_ids, self._sampling))
                    for candidate in own
                    if not candidate.live.is_over
                ]
                candidates += own
                pool += own
            pools.append(pool)
            grown.append(candidates)
        self._answer(requests)
        self._score([candidate for candidates in grown for candidate in candidates])
        for candidates in grown:
            _note(candidates)
        return [sorted(pool, key=_place)[: self._width] for pool in pools]

    def _prompt(self, beginning: _Beginning) -> list[int] | None:
        prompt_ids = prompt_with_room(beginning.live, self._sampling, self._max_context_tokens)
        if prompt_ids is None and self._is_beam:  # what it gives up is paid for
            beginning.score = _paid(beginning.live.rows)
        return prompt_ids

    def _candidates(self, beginning: _Beginning, first: int) -> Iterator[_Beginning]:
        for index in range(self._num_candidates):
            number, turn = first + index, beginning.live.turn
            yield _Beginning(
                live=beginning.live.branch("candidate", number),
                name=f"{beginning.name}.{turn}:{index}" if index else beginning.name,
                parent=beginning.number,
                number=number,
                path=list(beginning.path),
            )

    def _answer(self, requests: Sequence[tuple[LiveEpisode, Request]]) -> None:
        """Have all requests answered and the responses carried out."""
        waiting = {request.sequence_id: episode for episode, request in requests}
        if requests:
            self._stream.submit([request for _, request in requests])
        while waiting:
            finished = self._stream.finished()
            texts = texts_of(self._tokenizer, finished, self._contexts.stop_token_ids)
            for (name, response), text in zip(finished, texts, strict=True):
                if name not in waiting:
                    raise EngineError(f"the engine answered sequence '{name}' twice, or unasked")
                waiting.pop(name).respond(response, text)

    def _score(self, candidates: Sequence[_Beginning]) -> None:
        """Score candidates, after the turns that are looked ahead."""
        seen = [candidate.live for candidate in candidates]
        if self._depth > 1:
            seen = [live if live.is_over else live.branch("lookahead", 0) for live in seen]
        for _ in range(self._depth - 1):
            requests = []
            for candidate, live in zip(candidates, seen, strict=True):
                if live.is_over:
                    continue
                prompt_ids = prompt_with_room(live, self._sampling, self._max_context_tokens)
                if prompt_ids is not None:
                    requests.append((live, request_of(live, candidate.name, prompt_ids, self._sampling)))
            self._answer(requests)
        for candidate, live in zip(candidates, seen, strict=True):
            first = 0 if self._is_beam else len(candidate.live.rows) - 1
            candidate.score = _paid(live.rows[first:])


def play_searching(
    session: RolloutSession | StreamingSession,
    contexts: ContextBuilder,
    tokenizer: PreTrainedTokenizerBase,
    settings: EnvironmentSettings,
    agent: AgentConfig,
    sampling: SamplingConfig,
    max_context_tokens: int,
    episodes: Sequence[Episode],
    search: SearchConfig,
    deadline_s: float | None = None,
) -> pa.Table:
    """Play episodes to their ends as `loop.play` does, each turn's response chosen among several.

    Args:
        session: Answers prompts; not closed here.
        contexts: Made for this tokenizer and `agent`.
        tokenizer: Turns response ids to text.
        settings: Of the environment that is played.
        agent: Limits of turns and actions, and the response's form.
        sampling: Longest response.
        max_context_tokens: Prompt and response together.
        episodes: With unique trajectory ids.
        search: How responses are chosen.
        deadline_s: Seconds from now; None: no limit.

    Returns:
        Dataset `turns`, the rows of an episode together, in the order of `episodes`; behind its columns each turn's
        siblings (`siblings.TRAVELLING`). Candidates of turns that the chosen trajectory does not have are left out.

    Raises:
        EngineError: If the engine does not answer every request, or log-probs do not align with tokens.
    """
    assert contexts.agent == agent, "the contexts were built for another agent"
    stop_at = None if deadline_s is None else time.monotonic() + deadline_s
    roots = [LiveEpisode(episode, make(settings), contexts) for episode in episodes]
    share_initial_digests(roots)
    shard = _Search(session, contexts, tokenizer, sampling, max_context_tokens, search)
    beams = [[_Beginning(live, live.episode.trajectory_id)] for live in roots]
    while live := [one.live for beginnings in beams for one in beginnings if not one.live.is_over]:
        if stop_at is not None and time.monotonic() >= stop_at:
            for episode in live:
                episode.end_late()
            break
        beams = shard.play_turn(beams)
    chosen = [min(beginnings, key=_place) for beginnings in beams]
    rows = [row for beginning in chosen for row in beginning.live.rows]
    siblings = [told for beginning in chosen for told in _siblings(beginning)]
    return with_siblings(table_of(rows), siblings)


def _paid(rows: Sequence[Row]) -> float | None:
    """What the environment pays for turns, the price of actions that they gave up included; None: it failed."""
    if any(row["status"] == "env_error" for row in rows):
        return None
    total = 0.0
    for row in rows:
        given_up = row["actions_left"] if row["status"] == "truncated" else row["forfeited_actions"]
        total += sum(row["action_rewards"]) + given_up * row["action_cost"]
    return total + 0.0  # never -0.0


def _place(beginning: _Beginning) -> tuple[bool, float]:
    """Sorts the best first; sorting is stable, so that ties go to the earlier one."""
    return beginning.score is None, 0.0 if beginning.score is None else -beginning.score


def _note(candidates: list[_Beginning]) -> None:
    """Write down what every candidate of a trajectory's turn was chosen among."""
    spoken = [candidate for candidate in candidates if candidate.has_spoken]
    told: list[Row] = [
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
        candidate.path.append((told, candidate.number))
        candidate.live.rows[-1] |= {
            "num_candidates": len(same),
            "num_as_good": sum(_place(other) <= _place(candidate) for other in same),
        }


def _siblings(beginning: _Beginning) -> Iterator[list[Row]]:
    """For each of its rows, the candidates of that turn."""
    for turn, row in enumerate(beginning.live.rows):
        told, taken = beginning.path[turn] if row["origin"] == "search" else ([], -1)
        yield [{**candidate, "chosen": candidate["candidate"] == taken} for candidate in told]
