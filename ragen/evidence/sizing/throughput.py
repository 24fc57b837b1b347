"""Tokens of an iteration, and the seconds they take on an assumed device.

settings --count_tokens--> IterationTokens --seconds--> rollout, update
"""

import math
from dataclasses import dataclass

from starpo.ragen.agents.prompting.forms import in_form
from starpo.ragen.agents.prompting.prompt import prompt_of
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.envs import make
from starpo.ragen.evidence.sizing.architecture import Architecture, tiny_tokenizer
from starpo.ragen.evidence.sizing.device import Machine
from starpo.ragen.evidence.sizing.memory import BYTES, DType, kv_cache_bytes

CHARACTERS_A_TOKEN = 3.0
"""Characters per prompt token; text boards have about two, English four. Assumed if no tokenizer is available."""
RESPONSE_SHARE = 0.5
"""Mean response length as a share of the maximum. Assumed; the tiny policy's is about 0.5, and that of a model falls
during training (RAGEN, Fig 11)."""
_TEMPLATE_TOKENS = 10
"""Tokens of a chat template around a user message."""
TINY_DECODED = 62_000.0
"""Tokens per second and core that the torch engine decodes with the tiny policy, environments included. Measured over
57 iterations of the preset `sokoban` on two cores: 2,340 turns of 16.5 tokens in 0.31 s."""
TINY_TRAINED = 17_500.0
"""Tokens per second and core of a forward and backward pass of the tiny policy in the torch learner. Measured on the
same run: half of 2,340 turns of 41 tokens, trained on once and scored three times, in 2.7 s."""
_TINY_PARAMETERS = 573_824


@dataclass(frozen=True)
class IterationTokens:
    """Tokens of one iteration: expected values and upper bounds.

    Attributes:
        num_trajectories: P N, number of trajectories.
        num_turns: Maximum number of turns of all trajectories together.
        prompt: Prompt tokens of a trajectory, each counted once.
        response: Expected response tokens of a trajectory.
        context: Expected context length at its last response.
        longest_context: Maximum context length, which caches and micro-batches must hold.
        longest_response: Maximum number of response tokens in one segment of an update, at most `longest_context`.
        segments: Tokens that an update reads per trajectory: its whole context once, or one window per turn.
        kept: Maximum number of trajectories that the filter keeps over all attempts, as a share of those of one.
        sampled: Maximum number of responses decoded per turn of these trajectories, including those of greedy members,
            further attempts and search.
        stored: The same for stored responses, without the lookahead of search.
    """

    num_trajectories: int
    num_turns: int
    prompt: float
    response: float
    context: float
    longest_context: int
    longest_response: int
    segments: float
    kept: float
    sampled: float = 1.0
    stored: float = 1.0

    @property
    def decoded(self) -> float:
        """Response tokens of all trajectories, and of everything sampled in addition."""
        return self.num_trajectories * self.response * self.sampled

    @property
    def trained(self) -> float:
        """Tokens read by one pass of the update."""
        return self.num_trajectories * self.kept * self.segments


@dataclass(frozen=True)
class Seconds:
    """Duration of an iteration, and the rates it is based on.

    Attributes:
        rollout: Seconds of the rollout.
        update: Seconds of the update.
        decoded_tokens_s: Tokens per second of the rollout, over all devices.
        trained_tokens_s: Tokens per second of a forward and backward pass of the policy, over all devices.
        assumption: Source of the rates.
    """

    rollout: float
    update: float
    decoded_tokens_s: float
    trained_tokens_s: float
    assumption: str


def count_tokens(config: StarPOConfig, response_share: float = RESPONSE_SHARE) -> IterationTokens:
    """Count the tokens of an iteration in which every trajectory uses all its turns.

    Prompts are the environment's actual text at `CHARACTERS_A_TOKEN`; for the embedded policy its tokenizer counts them
    exactly.

    Args:
        config: Settings of the run.
        response_share: Mean response length as a share of the maximum.
    """
    agent, rollout = config.agent, config.rollout
    opening, message = _prompt_tokens(config)
    response = rollout.max_response_tokens * response_share
    turns = agent.max_turns

    def context(turns_in_sight: int, each: float) -> float:
        return min(rollout.max_context_tokens, opening + turns_in_sight * (message + each))

    window = turns if agent.context == "full" else min(agent.window_turns, turns)
    segments = turns * context(window, response) if agent.begins_anew else context(turns, response)
    longest = math.ceil(context(window, rollout.max_response_tokens))
    played = (rollout.group_size + rollout.num_greedy) / rollout.group_size * rollout.max_attempts
    return IterationTokens(
        num_trajectories=rollout.num_groups * rollout.group_size,
        num_turns=rollout.num_groups * rollout.group_size * turns,
        prompt=opening + turns * message,
        response=min(turns * response, rollout.max_context_tokens * (turns if agent.begins_anew else 1)),
        context=context(window, response),
        longest_context=longest,
        longest_response=min(longest, rollout.max_response_tokens * (1 if agent.begins_anew else turns)),
        segments=segments,
        kept=_num_kept(config) / rollout.num_groups,
        sampled=played * (rollout.search.num_sampled if rollout.search else 1),
        stored=played * (rollout.search.num_rows if rollout.search else 1),
    )


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


def seconds(
    config: StarPOConfig,
    architecture: Architecture,
    tokens: IterationTokens,
    machine: Machine,
    decoded_tokens_s: float | None = None,
    trained_tokens_s: float | None = None,
) -> Seconds:
    """Estimate the seconds of an iteration.

    Training: 6 P operations per token forward and backward, 2 P forward (Kaplan et al. 2020, 2001.08361, section 2.1),
    at the device's `training_share`. An update scores all tokens with the policy before and after it (or the share
    `scored_share`, if the rollout's log-probs are those of the policy) and trains `num_epochs` times; the critic trains
    as often and is scored once; a process reward model is scored before and after its single step, the reference once.
    Activation checkpointing adds 2 P to training, and nothing to scoring. Every token is counted, although prefixes
    shared by segments are computed only once: how much is shared is not known before the rollout.

    Decoding: a step reads all weights and the KV cache of the rows in the batch, at `decoding_share` of the device's
    bandwidth, and takes at least the time of 2 P operations per token. On a CPU both rates are those measured with the
    tiny policy, inversely proportional to the number of parameters; a smaller policy is assumed to be no faster.

    Args:
        config: Settings of the run.
        architecture: Architecture of the policy.
        tokens: Tokens of the iteration.
        machine: Machine to run on.
        decoded_tokens_s: Measured tokens per second of the rollout; None to estimate it.
        trained_tokens_s: Measured tokens per second of training; None to estimate it.
    """
    told = [name for name, rate in (("decoding", decoded_tokens_s), ("training", trained_tokens_s)) if rate]
    decoding = decoded_tokens_s or _decoded_tokens_s(config, architecture, tokens, machine)
    training = trained_tokens_s or _trained_tokens_s(config, architecture, machine)
    device = machine.device
    assumed = (
        "rates measured with the tiny policy on one core, by parameters and cores"
        if device.is_cpu
        else f"{device.name} at {device.training_share:.0%} of its operations in training and "
        f"{device.decoding_share:.0%} of its bandwidth in decoding"
    )
    return Seconds(
        rollout=tokens.decoded / decoding,
        update=num_passes(config.update) * tokens.trained / training,
        decoded_tokens_s=decoding,
        trained_tokens_s=training,
        assumption=assumed + (f"; {' and '.join(told)} as given" if told else ""),
    )


def num_passes(update: UpdateConfig) -> float:
    """Return the work of an update in forward and backward passes of the policy over all of its tokens."""
    num_trained = update.num_epochs * (1 + update.needs_critic) + update.needs_prm
    num_scored = 2 * update.scored_share + update.needs_critic + 2 * update.needs_prm + (update.kl_coefficient > 0)
    recomputed = 4 / 3 if update.activation_checkpointing else 1.0
    return recomputed * num_trained + num_scored / 3


def _trained_tokens_s(config: StarPOConfig, architecture: Architecture, machine: Machine) -> float:
    device = machine.device
    if device.is_cpu:
        return TINY_TRAINED * _beside_tiny(architecture) * machine.number
    number = min(machine.number, config.update.deepspeed.num_ranks if config.update.learner == "deepspeed" else 1)
    return number * device.training_share * device.flops[config.update.dtype] / (6 * architecture.num_parameters)


def _decoded_tokens_s(
    config: StarPOConfig, architecture: Architecture, tokens: IterationTokens, machine: Machine
) -> float:
    device, engine = machine.device, config.rollout.engine
    if device.is_cpu:
        return TINY_DECODED * _beside_tiny(architecture) * machine.number
    dtype = engine_dtype(config, device.is_cpu)
    number = config.rollout.vllm.num_engines if engine == "vllm" else 1
    rows = tokens.num_trajectories / number
    rows = min(rows, config.rollout.vllm.max_num_seqs if engine == "vllm" else shard_rows(config))
    read = BYTES[dtype] * architecture.num_parameters + kv_cache_bytes(architecture, rows * tokens.context / 2, dtype)
    step_s = max(
        read / (device.bandwidth_bytes_s * device.decoding_share),
        2 * architecture.num_parameters * rows / (device.flops[dtype] * device.training_share),
    )
    return number * rows / step_s


def _beside_tiny(architecture: Architecture) -> float:
    """Return the rate relative to the tiny policy's, at most 1: in a smaller one, weights do not set the pace."""
    return min(1.0, _TINY_PARAMETERS / architecture.num_parameters)


def shard_rows(config: StarPOConfig) -> int:
    """Return the number of responses that the torch engine generates together."""
    rollout = config.rollout
    num_groups = min(rollout.shard_groups, rollout.num_groups)
    return num_groups * rollout.group_size * (rollout.search.num_rows if rollout.search else 1)


def engine_dtype(config: StarPOConfig, is_cpu: bool) -> DType:
    """Return the dtype of the engine's weights and caches."""
    if is_cpu:
        return "float32"
    if config.rollout.engine == "vllm":
        return "float32" if config.rollout.vllm.dtype == "float32" else "bfloat16"
    return config.policy.dtype if config.policy.type == "pretrained" else "float32"


def _prompt_tokens(config: StarPOConfig) -> tuple[float, float]:
    """Count the tokens of the opening of a context and of a turn's message in the run's environment."""
    environment, agent = make(config.environment), config.agent
    observation, _ = environment.reset(seed=0)
    prompt = in_form(prompt_of(agent), agent)
    message = prompt.turn_message(
        observation, turn=1, actions_left=agent.max_actions, reward=0.0 if agent.should_show_reward else None,
        had_invalid_action=False, agent=agent, grammar=environment.grammar,
        max_response_tokens=config.rollout.max_response_tokens,
    )  # fmt: skip
    opening = prompt.introduction(environment.rules(), environment.grammar, agent)
    if config.policy.type == "tiny":
        tokenizer = tiny_tokenizer(config.policy, config.environment, agent.form)
        return float(len(tokenizer.encode(opening))), float(len(tokenizer.encode(message)) + _TEMPLATE_TOKENS)
    return len(opening) / CHARACTERS_A_TOKEN, len(message) / CHARACTERS_A_TOKEN + _TEMPLATE_TOKENS
