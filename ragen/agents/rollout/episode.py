"""One episode: its identity, and its course from reset to end, recorded as rows of `turns`.

    Episode (seeds) -> LiveEpisode: begin -> (prompt -> response -> steps) x K -> rows

Implements an episode's rules: limits of actions and turns, the cost of a malformed response, what ends an episode and
with which status. Independent of engines, batches, the clock of deadlines and reward components.
"""

import copy
import json
import math
import random
import traceback
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from starpo.ragen.agents.prompting.context import Context, ContextBuilder
from starpo.ragen.agents.prompting.forms import read_response
from starpo.ragen.agents.prompting.parser import ParsedResponse, format_response, prefilled_tag
from starpo.ragen.agents.rollout.engine import Response
from starpo.ragen.agents.vision.image import Image, PlacedImage
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import CallLimitError, ConfigError, EnvironmentFault
from starpo.ragen.core.guard import FOREIGN, guarded
from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs import make
from starpo.ragen.envs.base import MAX_OBSERVATION, Environment, EnvironmentSettings
from starpo.ragen.envs.make import environment_type
from starpo.schemas.datasets import NO_RESPONSE

Row = dict[str, Any]
"""Column of `turns` -> value; and `images`, the images in the turn's prompt (`turn_images`)."""

UNKNOWN_DIGEST = "0" * 16


@dataclass(frozen=True)
class Episode:
    """Everything that determines a trajectory, besides the policy and the settings.

    Attributes:
        group_id: Id of the group, whose members have the same `env_seed`.
        member: Index in the group: 0 .. N-1, then the greedy members.
        env_seed: Seed of the initial state.
        dynamics_seed: Seed of the randomness in this member's dynamics.
        sampling_seed: Seed of this member's tokens.
        is_greedy: Whether its tokens are the most probable ones, whatever the seed.
    """

    group_id: str
    member: int
    env_seed: int
    dynamics_seed: int
    sampling_seed: int
    is_greedy: bool = False

    @property
    def trajectory_id(self) -> str:
        """Unique among the episodes of a rollout."""
        return f"{self.group_id}-{self.member}"

    def columns(self, settings: EnvironmentSettings) -> Row:
        """Return the columns that identify it in each of its rows."""
        seeds = ("group_id", "env_seed", "dynamics_seed", "sampling_seed", "member")
        identity = {name: getattr(self, name) for name in seeds}
        return {"trajectory_id": self.trajectory_id, "env": settings.tag_of(self.env_seed), **identity}

    def begin(self, settings: EnvironmentSettings, contexts: ContextBuilder) -> "list[LiveEpisode]":
        """Begin it; what is stored of another one may begin as several (`branches`)."""
        return [LiveEpisode(self, make(settings, may_ask=True), contexts)]

    def turn_seed(self, turn: int) -> int | None:
        """Return the seed with which the dynamics are reseeded before this turn's actions; None: they go on."""
        return None

    def branch(self, *path: str | int) -> "Episode":
        """Return the same episode with different randomness in tokens and steps, derived from its seeds and a path."""
        return replace(
            self,
            dynamics_seed=derive_seed(self.dynamics_seed, *path),
            sampling_seed=derive_seed(self.sampling_seed, *path),
        )


@dataclass
class _Reply:
    """The environment's reaction to a response's actions; filled step by step, so that an error loses nothing."""

    observation: str
    executed_actions: list[str] = field(default_factory=list)
    action_rewards: list[float] = field(default_factory=list)
    action_effective: list[bool] = field(default_factory=list)
    terminated: bool = False
    info: str = "{}"
    has_failed: bool = False


class LiveEpisode:
    """An episode in play.

    Attributes:
        episode: Its identity.
        rows: Rows of `turns`, one for each completed turn.
        first_turn: Index of the first turn that it plays itself; those before are of the episode that it continues.
        is_over: Whether it has ended, for whatever reason.
        turn: Index of the current turn.
        initial_digest: Digest of the initial state; zeros if it was never observed.
    """

    def __init__(self, episode: Episode, environment: Environment, contexts: ContextBuilder) -> None:
        """Reset the environment. If that fails, the episode is over, with one row of status 'env_error'."""
        self.episode = episode
        self.rows: list[Row] = []
        self.first_turn = 0
        self.is_over = False
        self.turn = 0
        self._environment = environment
        self._limit = Runtime.current().environment_limit
        self._agent = contexts.agent
        self._contexts = contexts
        self._opening = prefilled_tag(contexts.agent)
        self._actions_left = contexts.agent.max_actions
        self._observation = ""
        self.initial_digest = self._digest = UNKNOWN_DIGEST
        self._is_success = False
        self._origin = "greedy" if episode.is_greedy else "policy"
        self._reward: float | None = None
        self._had_invalid_action = False
        self._prompt_ids: list[int] = []
        self._look = contexts.look
        self._image: Image | None = None
        self._shown: tuple[PlacedImage, ...] = ()
        # Environments are third-party code: every exception is recorded as data and never scored as a reward of 0.
        try:
            with self._guarded():
                observation, _ = environment.reset(seed=episode.env_seed, dynamics_seed=episode.dynamics_seed)
                self._observation = _as_text(observation)
                self.initial_digest = self._digest = environment.state_digest()
                self._grammar = environment.grammar
                self._context: Context = contexts.start(environment)
                self._image = self._look(environment)
        except CallLimitError:
            raise
        except FOREIGN as error:
            self.end_without_response("env_error", _facts(error))

    def _guarded(self) -> AbstractContextManager[None]:
        return guarded(f"environment '{self._environment.settings.type}'", self._limit)

    def branch(self, purpose: str, number: int) -> "LiveEpisode":
        """Return a copy of the episode for exploration, with a copy of the environment; this one is unchanged.

        Args:
            purpose: Purpose of the branch.
            number: Index among several branches. The branch's randomness is derived from this episode's seeds, the
                turn, the purpose and the number.

        Returns:
            An episode of origin 'search'; it is over, with a row of status 'env_error', if the environment cannot be
            copied.
        """
        branch = self.continue_as(self.episode.branch(purpose, self.turn, number))
        branch.first_turn, branch._origin = self.first_turn, "search"
        return branch

    def continue_as(self, episode: Episode) -> "LiveEpisode":
        """Return a copy that plays on from here as another episode, with a copy of the environment; this one is
        unchanged. The copy is over, with a row of status 'env_error', if the environment cannot be copied."""
        branch = copy.copy(self)
        branch.episode, branch.first_turn = episode, self.turn
        branch.rows = list(self.rows)
        branch._context = self._context.copy()
        try:
            with self._guarded():
                branch._environment = self._environment.clone(episode.dynamics_seed)
        except CallLimitError:
            raise
        except FOREIGN as error:  # as in reset: third-party code
            branch.end_without_response("env_error", _facts(error))
        return branch

    def prompt(self) -> list[int]:
        """Build the current turn's prompt.

        Returns:
            The whole context, up to the beginning of the response. [num_prompt_tokens]
        """
        added = self._context.observe(
            self._observation,
            actions_left=self._actions_left,
            reward=self._reward,
            had_invalid_action=self._had_invalid_action,
            image=self._image,
        )
        self._prompt_ids, self._shown = added.prompt_ids, added.images
        return self._context.token_ids

    @property
    def images(self) -> tuple[PlacedImage, ...]:
        """Images of the current turn's prompt."""
        return self._context.images

    @property
    def max_concurrent_steps(self) -> int:
        """See `Environment.max_concurrent_steps`."""
        return self._environment.max_concurrent_steps

    def messages(self) -> list[dict[str, str]]:
        """Return the current turn's prompt as messages: user messages and the agent's responses in between."""
        user_texts = self._context.user_texts
        answers = [row["response"] for row in self.rows[len(self.rows) + 1 - len(user_texts) :]]
        system = self._agent.system_prompt
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": user_texts[0]})
        for answer, text in zip(answers, user_texts[1:], strict=True):
            messages += [{"role": "assistant", "content": self._opening + answer}, {"role": "user", "content": text}]
        return messages

    def decide(self, player: str, rng: random.Random) -> list[int]:
        """Return the response of a player without a model in this turn, as token ids with the end token.

        Args:
            player: 'random': as many random actions as a turn may have. 'solver': the environment's demonstrator at
                full skill.
            rng: Randomness of the decision.

        Raises:
            ConfigError: If the solver is asked, and the environment has no demonstrator.
        """
        environment, num_actions = self._environment, self._agent.max_actions_per_turn
        if player == "random":
            with self._guarded():
                actions = tuple(environment.random_action(rng) for _ in range(num_actions))
            think = "random"
        else:
            target = environment_type(environment.settings.type).demonstrator
            if not target:
                raise ConfigError(f"environment '{environment.settings.type}' has no demonstrator, so nobody solves it")
            with guarded(f"the demonstrator of '{environment.settings.type}'", Runtime.current().plugin_limit):
                decision = resolve(target)(environment, 1.0, rng)
            think, actions = decision.think, decision.actions[:num_actions]
        text = format_response(think, actions, self._agent, environment.grammar)
        return [*self._contexts.response_ids(text), self._contexts.stop_token_ids[0]]

    def respond(self, response: Response, text: str) -> None:
        """Execute the response to the current prompt, record the turn, and advance to the next turn or end.

        The known actions before the first unknown one are executed, as far as limits allow. A malformed response of
        which nothing can be executed forfeits as many actions as a turn may have, if `should_malformed_use_actions`:
        never acting must not pay off.

        Args:
            response: The sampled response.
            text: Its text without the end token.
        """
        self._context.respond(response.token_ids)
        parsed = read_response(text, grammar=self._grammar, agent=self._agent)
        is_well_formed = parsed.format_ok and response.finish_reason == "stop"
        num_allowed = min(self._agent.max_actions_per_turn, self._actions_left)
        reply = self._act(parsed.known_prefix[:num_allowed])
        is_forfeit = not (is_well_formed or reply.executed_actions or reply.has_failed)
        num_forfeited = num_allowed if is_forfeit and self._agent.should_malformed_use_actions else 0
        actions_left = self._actions_left - len(reply.executed_actions) - num_forfeited
        is_last = self.turn + 1 == self._agent.max_turns or actions_left == 0
        self._record(
            prompt_ids=self._prompt_ids,
            images=self._shown,
            **_spoken(response, text, parsed),
            origin=self._origin,
            executed_actions=reply.executed_actions,
            action_rewards=reply.action_rewards,
            action_effective=reply.action_effective,
            format_ok=is_well_formed,
            forfeited_actions=num_forfeited,
            status="env_error" if reply.has_failed else "ok" if is_well_formed else "format_error",
            terminated=reply.terminated,
            truncated=is_last and not reply.terminated and not reply.has_failed,
            info=reply.info,
        )
        self.is_over = is_last or reply.terminated or reply.has_failed
        self.turn += 1
        self._observation = reply.observation
        self._actions_left = actions_left
        self._reward = sum(reply.action_rewards)
        self._had_invalid_action = not is_well_formed

    def end_without_response(self, status: str, facts: dict[str, str]) -> None:
        """Record a last turn without a response.

        Args:
            status: 'truncated' (the context is full), 'timeout', or 'env_error'.
            facts: Reason, for the column `info`.
        """
        origin = "greedy" if self.episode.is_greedy else NO_RESPONSE["origin"]
        is_cut = status != "env_error"
        self._record(status=status, origin=origin, terminated=False, truncated=is_cut, info=_as_json(facts))
        self.is_over = True

    def end_late(self) -> None:
        """Record a last turn without a response because the shard's deadline has passed."""
        self.end_without_response("timeout", {"error": "the shard's deadline has passed (rollout.deadline_s)"})

    def _act(self, actions: tuple[str, ...]) -> _Reply:
        reply = _Reply(self._observation)
        try:
            with self._guarded():
                if (seed := self.episode.turn_seed(self.turn)) is not None:
                    self._environment.reseed(seed)
                self._execute(actions, reply)
                self._digest = self._environment.state_digest()
                self._is_success = self._environment.is_success
                self._image = self._look(self._environment)
        except CallLimitError:
            raise
        except FOREIGN as error:
            reply.has_failed = True
            reply.info = _as_json(_facts(error))
        return reply

    def _execute(self, actions: tuple[str, ...], reply: _Reply) -> None:
        for action in actions:
            observation, reward, terminated, _, info = self._environment.step(action)
            text, paid, is_effective = _as_text(observation), _as_reward(reward), bool(info["effective"])
            reply.observation, reply.terminated = text, bool(terminated)
            reply.action_effective.append(is_effective)
            reply.action_rewards.append(paid)
            reply.executed_actions.append(action)
            if reply.terminated:
                break
        if reply.executed_actions:
            reply.info = _as_json(info)

    def _record(self, **columns: Any) -> None:
        row: Row = {
            **self.episode.columns(self._environment.settings),
            "turn": self.turn,
            "observation": self._observation,
            "is_context_start": self.turn == 0 or self._agent.begins_anew,
            "action_cost": self._environment.action_cost,
            "success": self._is_success,
            "actions_left": self._actions_left,
            "initial_state_digest": self.initial_digest,
            "state_digest": self._digest,
        }
        self.rows.append(row | NO_RESPONSE | {"images": ()} | columns)


def _spoken(response: Response, text: str, parsed: ParsedResponse) -> Row:
    return {
        "response_ids": response.token_ids,
        "behaviour_logprobs": response.logprobs,
        "response": text,
        "finish_reason": response.finish_reason,
        "think": parsed.think,
        "answer": parsed.answer,
        "parsed_actions": list(parsed.actions),
    }


def _facts(error: BaseException) -> dict[str, str]:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return {
        "error": type(error).__name__,
        "message": without_secrets(str(error)),
        "where": f"{place.name}:{place.lineno}",
    }


def describe_error(info: str) -> str:
    """Describe an error of the environment from the column `info`, such as `RuntimeError: no floor (in step:42)`."""
    facts = json.loads(info)
    where = f" (in {facts['where']})" if "where" in facts else ""
    return f"{facts.get('error', 'an error')}: {str(facts.get('message', '')).partition(chr(10))[0][:400]}{where}"


def _as_json(info: dict[str, Any]) -> str:
    return json.dumps(info, sort_keys=True, allow_nan=False)


def _as_text(observation: str) -> str:
    """Check that an observation can be stored; raises UnicodeEncodeError for lone surrogates, or EnvironmentFault."""
    if len(observation) > MAX_OBSERVATION:
        raise EnvironmentFault(
            f"an observation has {len(observation)} characters, at most {MAX_OBSERVATION} are accepted: show a part"
        )
    observation.encode("utf-8")
    return observation


def _as_reward(reward: float) -> float:
    """Check that a reward is finite, so that it can be stored and summed; raises EnvironmentFault otherwise."""
    number = float(reward)
    if not math.isfinite(number):
        raise EnvironmentFault(f"the reward of a step is {number}, expected a finite number")
    return number
