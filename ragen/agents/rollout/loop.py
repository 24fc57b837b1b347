"""The rollout loop: a shard of episodes played concurrently, turn by turn.

    episodes -> prompts -> submit -> (engine) -> finished -> parse, step -> rows of `turns`
                   ^--------------------------------------------'

An episode whose response has ended takes its step and requests its next turn at once; with an engine that answers in
rounds, that is one call per turn for all live episodes. When an episode ends, the others are unaffected, because tokens
depend only on an episode's own seeds and context.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request, Response, RolloutSession, StreamingSession
from starpo.ragen.agents.rollout.episode import Episode, LiveEpisode, Row
from starpo.ragen.agents.rollout.stream import as_stream
from starpo.ragen.agents.rollout.turn_images import with_images
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.seeding import derive_seed, token_uniforms
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.make import environment_type
from starpo.schemas.datasets import TURNS

__all__ = ["Episode", "loop_of", "play"]


def loop_of(settings: EnvironmentSettings) -> Callable[..., pa.Table]:
    """Return the function that plays episodes of an environment: `play`, unless the environment declares another one.

    Raises:
        ConfigError, RegistryError: If there is no environment of that type, or what it declares cannot be loaded.
    """
    plays = environment_type(settings.type).plays
    return resolve(plays) if plays else play


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
    """Play episodes to their ends.

    An episode whose context has no room for a response of maximum length ends with a turn of status 'truncated';
    episodes still live when the deadline has passed end with a turn of status 'timeout' (a call of `generate` or
    `finished` is not interrupted).

    Args:
        session: Answers prompts; not closed here.
        contexts: Built for this tokenizer and `agent`.
        tokenizer: Decodes response ids to text.
        settings: Settings of the environment.
        agent: Limits of turns and actions, and the response's form.
        sampling: Maximum response length.
        max_context_tokens: Limit of prompt and response together.
        episodes: Episodes with unique trajectory ids.
        deadline_s: Seconds from now; None for no limit.

    Returns:
        Dataset `turns`: the rows of an episode together, in the order of `episodes`; and where prompts show images,
        those of each turn (`turn_images`). Empty without episodes.

    Raises:
        EngineError: If the engine does not answer every request, or log-probs do not align with tokens.
    """
    assert contexts.agent == agent, "the contexts were built for another agent"
    stop_at = None if deadline_s is None else time.monotonic() + deadline_s
    all_episodes = [live for episode in episodes for live in episode.begin(settings, contexts)]
    share_initial_digests(all_episodes)
    stream = as_stream(session)
    waiting: dict[str, LiveEpisode] = {}
    asking = all_episodes
    while True:
        is_late = stop_at is not None and time.monotonic() >= stop_at
        asking = [episode for episode in asking if not episode.is_over]
        if is_late:
            for episode in [*asking, *waiting.values()]:
                episode.end_late()
            break
        active, requests = _ask(asking, sampling, max_context_tokens)
        waiting |= {episode.episode.trajectory_id: episode for episode in active}
        if requests:
            stream.submit(requests)
        if not waiting:
            break
        finished = stream.finished()
        texts = texts_of(tokenizer, finished, contexts.stop_token_ids)
        asking = [waiting.pop(sequence_id) for sequence_id, _ in finished]
        respond_all(list(zip(asking, (response for _, response in finished), texts, strict=True)))
    rows = [row for episode in all_episodes for row in episode.rows[episode.first_turn :]]
    return table_of(rows, agent.shows_images)


def respond_all(answered: Sequence[tuple[LiveEpisode, Response, str]]) -> None:
    """Give each episode its response. Steps that wait for a server are taken at the same time, in threads.

    Args:
        answered: Different episodes, the response to each, and its text without the end token.
    """
    waiting = [one for one in answered if one[0].max_concurrent_steps > 1]
    for episode, response, text in answered:
        if episode.max_concurrent_steps <= 1:
            episode.respond(response, text)
    if waiting:
        number = min(len(waiting), max(episode.max_concurrent_steps for episode, _, _ in waiting))
        with ThreadPoolExecutor(number, thread_name_prefix="steps") as threads:
            list(threads.map(lambda one: one[0].respond(one[1], one[2]), waiting))


def share_initial_digests(episodes: Sequence[LiveEpisode]) -> None:
    """Give rows of members whose reset failed the digest of their group's initial state."""
    # A member whose reset failed never observed its initial state, but all members of a group share one.
    digests = {episode.episode.group_id: episode.initial_digest for episode in episodes if not episode.is_over}
    for episode in episodes:
        for row in episode.rows:
            row["initial_state_digest"] = digests.get(episode.episode.group_id, episode.initial_digest)


def _ask(
    live: list[LiveEpisode], sampling: SamplingConfig, max_context_tokens: int
) -> tuple[list[LiveEpisode], list[Request]]:
    active, requests = [], []
    for episode in live:
        prompt_ids = prompt_with_room(episode, sampling, max_context_tokens)
        if prompt_ids is not None:
            active.append(episode)
            requests.append(request_of(episode, episode.episode.trajectory_id, prompt_ids, sampling))
    return active, requests


def prompt_with_room(episode: LiveEpisode, sampling: SamplingConfig, max_context_tokens: int) -> list[int] | None:
    """Return the current turn's prompt; if a response of maximum length does not fit, end the episode, return None."""
    prompt_ids = episode.prompt()
    num_needed = len(prompt_ids) + sampling.max_response_tokens
    if num_needed <= max_context_tokens:
        return prompt_ids
    reason = f"context full: {num_needed} tokens needed, max_context_tokens = {max_context_tokens}"
    episode.end_without_response("truncated", {"error": reason})
    return None


def request_of(episode: LiveEpisode, sequence_id: str, prompt_ids: list[int], sampling: SamplingConfig) -> Request:
    """Build the request for the current turn's response, with randomness from the episode's own seeds."""
    seed = episode.episode.sampling_seed
    return Request(
        sequence_id=sequence_id,
        prompt_ids=prompt_ids,
        uniforms=token_uniforms(seed, episode.turn, sampling.max_response_tokens),
        seed=derive_seed(seed, "turn", episode.turn),
        messages=episode.messages,
        images=episode.images,
        decide=episode.decide,
    )


def texts_of(
    tokenizer: PreTrainedTokenizerBase, finished: list[tuple[str, Response]], stop_token_ids: tuple[int, ...]
) -> list[str]:
    """Decode responses to texts, without their end tokens.

    Raises:
        EngineError: If log-probs do not align with tokens.
    """
    spoken = []
    for sequence_id, response in finished:
        ids = response.token_ids
        if len(ids) != len(response.logprobs):
            raise EngineError(
                f"the engine gave {len(response.logprobs)} log-probs for {len(ids)} tokens of {sequence_id}; every "
                "sampled token needs one"
            )
        spoken.append(ids[:-1] if ids and ids[-1] in stop_token_ids else ids)
    if not spoken:  # some releases of transformers treat this as one empty text
        return []
    # Special tokens inside a response stay visible: they break its form, as they should. Text is stored as generated,
    # so spaces before punctuation are not cleaned up.
    if tokenizer.is_fast:  # the same result, without checking every id
        return tokenizer.backend_tokenizer.decode_batch(spoken, skip_special_tokens=False)
    return tokenizer.batch_decode(spoken, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def table_of(rows: list[Row], has_images: bool = False) -> pa.Table:
    """Convert a shard's rows to dataset `turns`, with each turn's images if prompts show some."""
    columns = [pa.array([row[column.name] for row in rows], column.type) for column in TURNS.columns]
    turns = pa.Table.from_arrays(columns, schema=TURNS.schema)
    return with_images(turns, [row["images"] for row in rows]) if has_images else turns
