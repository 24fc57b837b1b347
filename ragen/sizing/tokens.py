"""Tokens of an iteration, counted from the settings alone.

settings --count_tokens--> IterationTokens
"""

import math
from dataclasses import dataclass

from starpo.ragen.agents.prompting.forms import in_form
from starpo.ragen.agents.prompting.prompt import prompt_of
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.context_fit import tiny_tokenizer, tokenizer_and_positions
from starpo.ragen.core.limits import environment_call
from starpo.ragen.envs import make
from starpo.ragen.envs.make import environment_type
from starpo.ragen.sizing.architecture import architecture_of

CHARACTERS_A_TOKEN = 3.0
"""Characters per prompt token; text boards have about two, English four. Assumed if no tokenizer is available."""
RESPONSE_SHARE = 0.5
"""Mean response length as a share of the maximum. Assumed; the tiny policy's is about 0.5, and that of a model falls
during training (RAGEN, Fig 11)."""
_TEMPLATE_TOKENS = 10
"""Tokens of a chat template around a user message."""


@dataclass(frozen=True)
class IterationTokens:
    """Tokens of one iteration: expected values and upper bounds.

    Attributes:
        num_trajectories: P N, number of trajectories.
        num_turns: Maximum number of turns of all trajectories together.
        prompt: Prompt tokens of a trajectory, each counted once.
        response: Expected response tokens of a trajectory.
        opening: Prompt tokens that all contexts begin with.
        context: Expected context length.
        longest_context: Maximum context length, which caches and micro-batches must hold.
        longest_response: Maximum number of response tokens in one segment of an update, at most `longest_context`.
        image: Tokens of the image that a turn shows; 0 if it shows none. They are part of the prompt.
        kept: Maximum number of trajectories that the filter keeps over all attempts, as a share of those of one.
        sampled: Maximum number of responses decoded per turn of these trajectories, including those of greedy members,
            further attempts and search.
        stored: The same for stored responses, without the lookahead of search.
    """

    num_trajectories: int
    num_turns: int
    prompt: float
    response: float
    opening: float
    context: float
    longest_context: int
    longest_response: int
    kept: float
    image: int = 0
    sampled: float = 1.0
    stored: float = 1.0


def count_tokens(config: StarPOConfig) -> IterationTokens:
    """Count the tokens of an iteration in which every trajectory uses all its turns.

    Prompts are the environment's actual text at `CHARACTERS_A_TOKEN`; for the embedded policy its tokenizer counts them
    exactly.
    """
    agent, rollout = config.agent, config.rollout
    opening, message = _prompt_tokens(config)
    image = _image_tokens(config)
    message += image
    response = rollout.max_response_tokens * RESPONSE_SHARE
    turns = agent.max_turns
    window = turns if agent.context == "full" else min(agent.window_turns, turns)
    needed = math.ceil(opening + window * (message + rollout.max_response_tokens))
    longest = min(rollout.max_context_tokens, needed)
    played = (rollout.group_size + rollout.num_greedy) / rollout.group_size * rollout.max_attempts
    return IterationTokens(
        num_trajectories=rollout.num_groups * rollout.group_size,
        num_turns=rollout.num_groups * rollout.group_size * turns,
        prompt=opening + turns * message,
        response=min(turns * response, rollout.max_context_tokens * (turns if agent.begins_anew else 1)),
        opening=opening,
        context=min(float(longest), opening + window * (message + response)),
        longest_context=longest,
        longest_response=min(longest, rollout.max_response_tokens * (1 if agent.begins_anew else turns)),
        kept=_num_kept(config) / rollout.num_groups,
        image=image,
        sampled=played * (rollout.search.num_sampled if rollout.search else 1),
        stored=played * (rollout.search.num_rows if rollout.search else 1),
    )


def _image_tokens(config: StarPOConfig) -> int:
    """Count the tokens of an image, with those around it, by the policy's own rule or, of a model elsewhere, by size.

    Raises:
        StarPOError: If the environment draws none, or the policy's files cannot be read.
    """
    if not config.agent.shows_images or environment_type(config.environment.type).plays:  # a program's are not known
        return 0
    from starpo.ragen.agents.vision.image import image_of

    environment = make(config.environment)
    with environment_call(config.environment.type):
        environment.reset(seed=0)
    image, tokenizer_pair = image_of(environment), tokenizer_and_positions(config)
    tokens = getattr(tokenizer_pair[0], "image_tokens", None) if tokenizer_pair is not None else None
    if tokens is not None:
        return len(tokens.ids(image))
    vision = architecture_of(config).vision
    if vision is None:
        return 0
    rows, columns = (max(1, round(side / vision.token_side)) for side in (image.height, image.width))
    return rows * columns + 2


def _num_kept(config: StarPOConfig) -> int:
    """Return the maximum number of groups that the filter keeps over all attempts."""
    kept, chosen = config.rollout.num_groups, config.filter
    scopes = len(config.tags) if chosen.scope == "environment" and config.tags else 1
    if chosen.strategy == "top_k":
        kept = min(scopes * (chosen.keep_count or kept), kept)
    elif chosen.strategy == "top_fraction" and scopes == 1:
        kept = max(1, math.floor(chosen.keep * kept + 0.5 + 1e-9))
    elif chosen.strategy == "top_fraction":  # of every part at least one, and less than one more than its share
        kept = min(math.ceil(chosen.keep * kept + scopes - 1e-9) - 1, kept)
    kept *= config.rollout.max_attempts
    return min(chosen.num_wanted or kept, kept)


def _prompt_tokens(config: StarPOConfig) -> tuple[float, float]:
    """Count the tokens of the opening of a context and of a turn's message in the run's environment."""
    environment, agent = make(config.environment), config.agent
    with environment_call(config.environment.type):
        observation, _ = environment.reset(seed=0)
    observation = "" if agent.observation == "image" else observation
    prompt = in_form(prompt_of(agent), agent)
    message = prompt.turn_message(
        observation, turn=1, actions_left=agent.max_actions, reward=0.0 if agent.should_show_reward else None,
        had_invalid_action=False, agent=agent, grammar=environment.grammar,
        max_response_tokens=config.rollout.max_response_tokens,
    )  # fmt: skip
    rules = environment.picture_rules() if agent.observation == "image" else environment.rules()
    opening = prompt.introduction(rules, environment.grammar, agent)
    if config.policy.type == "tiny":
        tokenizer = tiny_tokenizer(config)
        return float(len(tokenizer.encode(opening))), float(len(tokenizer.encode(message)) + _TEMPLATE_TOKENS)
    return len(opening) / CHARACTERS_A_TOKEN, len(message) / CHARACTERS_A_TOKEN + _TEMPLATE_TOKENS
