"""Demonstrations: a player's decisions as response tokens, in the contexts that the policy will see.

Prompts come from the rollouts' own context builder, so the training contexts match those of sampling. The initial
states of the evaluation panels are never demonstrated.
"""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.policy.tokenizer import demonstrator
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.forms import write_reasoning
from starpo.ragen.agents.prompting.parser import format_response
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import FineTuning, TinyPolicy
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.guard import guarded
from starpo.ragen.core.limits import environment_call
from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.registry import SCENES
from starpo.ragen.core.seeding import dynamics_seed, python_random
from starpo.ragen.envs import make
from starpo.ragen.envs.base import Environment, EnvironmentSettings
from starpo.ragen.envs.initial_states import fresh_env_seed
from starpo.ragen.envs.make import environment_type
from starpo.ragen.learning.examples import Example, examples_of


@dataclass(frozen=True)
class Demonstrations:
    """Demonstrated turns as tokens, and the successes of their episodes.

    Attributes:
        prompts: The whole context before each response, images with ids of their own. [turns][num_prompt_tokens]
        responses: The response with its end token. [turns][num_response_tokens]
        successes: Whether each episode succeeded. [episodes]
        initial_states: Digest of the initial state of each episode. [episodes]
        images: Images of the prompts.
    """

    prompts: list[list[int]] = field(default_factory=list)
    responses: list[list[int]] = field(default_factory=list)
    successes: list[bool] = field(default_factory=list)
    initial_states: list[str] = field(default_factory=list)
    images: ImageTable = field(default_factory=ImageTable)

    @property
    def num_turns(self) -> int:
        """Number of turns."""
        return len(self.prompts)

    @property
    def num_episodes(self) -> int:
        """Number of episodes."""
        return len(self.successes)

    @cached_property
    def examples(self) -> list[Example]:
        """Contexts to learn from; compute them only when all turns are there."""
        return examples_of(self.prompts, self.responses)


@guarded()
def demonstrate_turns(
    config: TinyPolicy | FineTuning,
    environment: EnvironmentSettings,
    agent: AgentConfig,
    max_response_tokens: int,
    excluded: frozenset[str],
    tokenizer: PreTrainedTokenizerBase,
    num_turns: int,
) -> Demonstrations:
    """Play whole episodes with the demonstrator until there are at least `num_turns` turns.

    If the environment has lessons (`Environment.lessons`), episodes cycle through their settings.

    Raises:
        ConfigError: If the environment has no demonstrator, or a demonstrated response is longer than allowed.
    """
    player, teach = resolve(demonstrator(config, environment)), environment_type(environment.type).lessons
    lessons = resolve(teach)(environment) if teach else (environment,)
    worlds = [make(lesson) for lesson in lessons]
    contexts = ContextBuilder(tokenizer, agent, max_response_tokens)
    played = Demonstrations()
    for episode in count():
        if len(played.prompts) >= num_turns:
            break
        world = worlds[episode % len(worlds)]
        env_seed = fresh_env_seed(world.settings, config.seed, "warm start", episode, excluded=excluded)
        with environment_call(environment.type):
            observation, _ = world.reset(seed=env_seed, dynamics_seed=dynamics_seed(env_seed, 0))
            played.initial_states.append(world.state_digest())
        rng = python_random(config.seed, "demonstrations", episode)
        context = contexts.start(world)
        actions_left, reward, is_over = agent.max_actions, None, False
        for _ in range(agent.max_turns):
            context.observe(
                observation,
                actions_left=actions_left,
                reward=reward,
                had_invalid_action=False,
                image=contexts.look(world),
            )
            with guarded(f"the demonstrator of '{environment.type}'", Runtime.current().plugin_limit):
                decision = player(world, config.demonstration_skill, rng)
            # The response is cut at the turn's limit, which is constant, but not at the number of actions left, which
            # the 'state' prompt does not show: excess actions are just not executed, as in a rollout.
            actions, before = decision.actions[: agent.max_actions_per_turn], observation
            reward = 0.0
            for action in actions[:actions_left]:
                observation, gain, terminated, truncated, _ = world.step(action)
                reward += gain
                actions_left -= 1
                is_over = terminated or truncated
                if is_over:
                    break
            think = _in_form(decision.think, agent, world, before, observation)
            text = format_response(think, actions, agent, world.grammar)
            response_ids = [*contexts.response_ids(text), contexts.stop_token_ids[0]]
            _check_length(response_ids, max_response_tokens)
            played.prompts.append(played.images.put(context.token_ids, context.images))
            played.responses.append(response_ids)
            context.respond(response_ids)
            # turns after a resignation would be two out of five in Sokoban, with nothing to learn from
            if is_over or actions_left == 0 or decision.is_resigned:
                break
        played.successes.append(world.is_success)
    return played


def _in_form(think: str, agent: AgentConfig, world: Environment[Any], before: str, after: str) -> str:
    """Write the player's reasoning in the agent's form, from the observations before and after its actions."""
    if agent.form == "free":
        return think
    scene = resolve(SCENES[world.settings.type])
    return write_reasoning(agent.form, think, scene(before, (), {}), scene(after, (), {}))


def _check_length(response_ids: list[int], max_response_tokens: int) -> None:
    if len(response_ids) > max_response_tokens:
        raise ConfigError(
            f"a demonstrated response takes {len(response_ids)} tokens, more than rollout.max_response_tokens = "
            f"{max_response_tokens}: raise that to at least {len(response_ids)}"
        )
