"""The loop of programs: a shard of episodes, each played by a program of its own that asks an endpoint.

    episodes -> programs -> endpoint -> calls -> submit -> (engine) -> finished -> answers -> ... -> rows of `turns`

Calls of all programs are in flight together. An engine that answers in rounds is given what waits once every program
waits, or after a few milliseconds; one that answers continuously gets further calls as they come. Tokens depend only on
a trajectory's own seeds and on the number of the call in it.
"""

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import lru_cache

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request, RolloutSession, StreamingSession
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.loop import table_of, texts_of
from starpo.ragen.agents.rollout.stream import as_stream
from starpo.ragen.agents.rollout.turn_images import with_images
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.methods.programs.chat import RunSampling
from starpo.ragen.methods.programs.conversations import ConversationPrompt
from starpo.ragen.methods.programs.endpoint import MAX_REFUSED, Endpoint, PendingCall
from starpo.ragen.methods.programs.process import RunningProgram
from starpo.ragen.methods.programs.served import Served
from starpo.ragen.methods.programs.settings import ProgramSettings
from starpo.ragen.methods.programs.spelling import Spelling
from starpo.ragen.methods.programs.tasks import task_of
from starpo.ragen.methods.programs.trajectory import ProgramTrajectory, ShardContext

MAX_RUNNING = 64
"""Programs that run at a time; further episodes of a shard begin as others end."""
LINGER_S = 0.002
"""How long a call waits for those of other programs before an engine at rest is given a batch."""
NUM_REWARDING = 4
"""Commands that compute rewards at a time."""
POLL_S = 0.02
"""How often programs are asked whether they have ended."""
SPELLING_S = 0.01
"""How long a call is waited for while its messages become tokens; the others go on if it takes longer."""
_LATE = ("deadline", "the shard's deadline has passed (rollout.deadline_s)")


def play(
    session: RolloutSession | StreamingSession,
    contexts: ContextBuilder,
    tokenizer: PreTrainedTokenizerBase,
    settings: EnvironmentSettings,
    agent: AgentConfig,
    sampling: SamplingConfig,
    max_context_tokens: int,
    episodes: Sequence[Episode],
    deadline_s: float | None = None,
) -> pa.Table:
    """Play episodes to their ends; arguments and result are those of `ragen.agents.rollout.loop.play`.

    Of `agent`, the settings of the chat template and of earlier reasoning have an effect, and `observation`, which lets
    programs show images; prompts are the program's.

    Raises:
        EngineError: If the endpoint cannot be started, or the engine fails.
        EnvironmentFault: If the tasks cannot be read.
    """
    assert isinstance(settings, ProgramSettings)
    assert contexts.agent == agent, "the contexts were built for another agent"
    stop_at = None if deadline_s is None else time.monotonic() + deadline_s
    context = ShardContext(contexts, tokenizer, _spelling(tokenizer, contexts), sampling, max_context_tokens)
    trajectories = [
        ProgramTrajectory(episode, settings, task_of(settings, episode.env_seed), context) for episode in episodes
    ]
    with Endpoint() as endpoint:
        Shard(as_stream(session), endpoint, settings, context, trajectories).play(stop_at)
    rows = [row for trajectory in trajectories for row in trajectory.rows]
    turns = table_of(rows)
    return with_images(turns, [row["images"] for row in rows]) if agent.shows_images else turns


@lru_cache(maxsize=2)
def _spelling(tokenizer: PreTrainedTokenizerBase, contexts: ContextBuilder) -> Spelling:
    return Spelling(tokenizer, contexts)


class Shard:
    """The programs of one shard."""

    def __init__(
        self,
        stream: StreamingSession,
        endpoint: Endpoint,
        settings: ProgramSettings,
        context: ShardContext,
        trajectories: Sequence[ProgramTrajectory],
    ) -> None:
        self._stream = stream
        self._endpoint = endpoint
        self._settings = settings
        self._context = context
        self._order = {one.episode.trajectory_id: place for place, one in enumerate(trajectories)}
        self._to_start = list(reversed(trajectories))
        self._live: dict[str, tuple[ProgramTrajectory, RunningProgram, str]] = {}
        self._to_spell: dict[str, deque[PendingCall]] = {}
        self._spelled: dict[str, Future[ConversationPrompt]] = {}  # of the first of these
        self._ready: list[tuple[int, Request]] = []
        self._ready_since = 0.0
        self._in_flight: dict[str, ProgramTrajectory] = {}
        self._polled_at = 0.0
        self._rewarded: list[Future[None]] = []
        self._spellers = ThreadPoolExecutor(MAX_RUNNING, thread_name_prefix="spelling")

    def play(self, stop_at: float | None) -> None:
        """Play all episodes to their ends, or until a time on the monotonic clock."""
        try:
            with ThreadPoolExecutor(NUM_REWARDING) as self._pool:
                try:
                    self._play(stop_at)
                except BaseException:
                    self._pool.shutdown(wait=False, cancel_futures=True)
                    self._context.unwanted.set()
                    raise
            for rewarded in self._rewarded:
                rewarded.result()
        finally:
            self._spellers.shutdown(wait=False, cancel_futures=True)
            for trajectory, program, key in self._live.values():
                served = self._endpoint.retire(key)
                program.kill()
                trajectory.end_unplayed(*_LATE, served, "timeout")
            for trajectory in self._to_start:
                trajectory.end_unplayed(*_LATE, Served(), "timeout")

    def _play(self, stop_at: float | None) -> None:
        while self._live or self._to_start or not all(one.done() for one in self._rewarded):
            if stop_at is not None and time.monotonic() >= stop_at:
                return
            self._start()
            calls = self._endpoint.calls(self._patience_s())
            for call in calls:
                self._take(call)
            stop_spelling_at = time.monotonic() + SPELLING_S if calls else 0.0
            for name in list(self._to_spell):
                self._ask(name, stop_spelling_at)
            self._end_those_that_ended()
            self._submit()
            if self._in_flight:
                self._answer()

    def _start(self) -> None:
        while self._to_start and len(self._live) < MAX_RUNNING:
            trajectory = self._to_start.pop()
            episode, sampling = trajectory.episode, self._context.sampling
            must_agree = self._settings.sampling == "refuse"
            # A greedy member has another temperature than the run, which its program need not know.
            is_sampled = not episode.is_greedy
            key = self._endpoint.admit(
                episode.trajectory_id,
                RunSampling(sampling.temperature, sampling.top_p, must_agree) if is_sampled else RunSampling(),
                takes_images=self._context.contexts.agent.shows_images,
            )
            task = {**trajectory.task, "dynamics_seed": episode.dynamics_seed}
            try:
                program = RunningProgram(self._settings, task, self._endpoint.url, key)
            except (StarPOError, OSError) as error:
                trajectory.end_unplayed("ProgramNotStarted", str(error), self._endpoint.retire(key))
            else:
                self._live[episode.trajectory_id] = trajectory, program, key

    def _patience_s(self) -> float:
        """Return how long to wait for further calls."""
        if self._in_flight:
            return 0.0
        if self._to_spell:
            return SPELLING_S
        if self._ready:
            return 0.0 if self._all_wait() else max(0.0, self._ready_since + LINGER_S - time.monotonic())
        return POLL_S

    def _all_wait(self) -> bool:
        return all(trajectory.is_waiting for trajectory, _, _ in self._live.values())

    def _take(self, call: PendingCall) -> None:
        if call.trajectory_id not in self._live or call.is_abandoned:
            return
        self._to_spell.setdefault(call.trajectory_id, deque()).append(call)
        self._spell(call.trajectory_id)

    def _spell(self, name: str) -> None:
        """Begin to spell out the first of a trajectory's calls.

        A new shape of messages or a list of tools takes a template as long as it takes, in a process of its own, and
        long texts take the tokenizer long: other trajectories do not wait for that.
        """
        if name not in self._spelled:
            trajectory, request = self._live[name][0], self._to_spell[name][0].request
            self._spelled[name] = self._spellers.submit(trajectory.prompt, request)

    def _ask(self, name: str, stop_at: float) -> None:
        """Make requests of a trajectory's calls, one after the other, as far as they are spelled out by then."""
        trajectory, calls = self._live[name][0], self._to_spell[name]
        while calls:
            self._spell(name)
            if not self._spelled[name].done():
                wait([self._spelled[name]], max(0.0, stop_at - time.monotonic()))
            if not self._spelled[name].done():
                return
            request = trajectory.ask(calls.popleft(), self._spelled.pop(name))
            if request is not None:
                if not self._ready:
                    self._ready_since = time.monotonic()
                self._ready.append((self._order[name], request))
        del self._to_spell[name]

    def _submit(self) -> None:
        is_due = self._in_flight or self._all_wait() or time.monotonic() >= self._ready_since + LINGER_S
        if not self._ready or not is_due:
            self._stream.submit(
                []
            )  # raises once the rollout is to stop, which programs that ask nothing must not delay
            return
        ordered = [request for _, request in sorted(self._ready, key=lambda entry: entry[0])]
        self._ready = []
        for request in ordered:
            self._in_flight[request.sequence_id] = self._live[request.sequence_id.rpartition("/")[0]][0]
        self._stream.submit(ordered)

    def _answer(self) -> None:
        finished = self._stream.finished()
        texts = texts_of(self._context.tokenizer, finished, self._context.contexts.stop_token_ids)
        for (sequence_id, response), text in zip(finished, texts, strict=True):
            trajectory = self._in_flight.pop(sequence_id)
            if trajectory.episode.trajectory_id in self._live:
                trajectory.on_response(sequence_id, response, text)

    def _end_those_that_ended(self) -> None:
        if time.monotonic() < self._polled_at + POLL_S:
            return
        self._polled_at = time.monotonic()
        for name, (trajectory, program, key) in list(self._live.items()):
            if self._endpoint.num_refused(key) >= MAX_REFUSED:  # it asks again and again
                program.kill()
            ended = program.poll()
            if ended is None:
                continue
            served = self._endpoint.retire(key)
            del self._live[name]
            self._to_spell.pop(name, None)
            self._spelled.pop(name, None)
            self._ready = [entry for entry in self._ready if entry[1].sequence_id.rpartition("/")[0] != name]
            if isinstance(self._settings.reward, list):  # a command takes its time, and the others go on
                self._rewarded.append(self._pool.submit(trajectory.end, ended, served))
            else:
                trajectory.end(ended, served)
