"""`imitate`: the warm start of the embedded policy, supervised learning on the decisions of a mediocre player.

The player knows the format and the rules and decides badly, so reinforcement learning begins with well-formed
responses, low success and varied returns. Prompts are made by the rollouts' own context builder, so what is imitated
is what will be sampled; the states that evaluation panels hold are never demonstrated.

    demonstrations -> (context, response) tokens -> next-token loss on the response -> Hugging Face folder

Suffixes: B examples, T tokens of the padded example, R response tokens of the batch.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from starpo.ragen.agents.evaluation.training_states import write_states
from starpo.ragen.agents.policy.load import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import demonstrator, make_tokenizer, unknown_speech
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.parser import format_response
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.registry import resolve
from starpo.ragen.core.seeding import derive_seed, dynamics_seed, python_random
from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.initial_states import fresh_env_seed
from starpo.ragen.envs.make import environment_type
from starpo.ragen.learning.learners.optimisers import ModelOptimiser, learning_rate_factor

_PARTS = 2
"""Parts of a batch that are learned side by side, one thread each, and threads of the optimiser. A constant, not the
number of cores: the policy that comes out must not depend on the machine's size."""


@dataclass(frozen=True)
class Demonstrations:
    """Demonstrated turns as tokens, and how well their player played.

    Attributes:
        prompts: The whole context before each response. [turns][num_prompt_tokens]
        responses: The response with its end token. [turns][num_response_tokens]
        successes: Did each episode succeed? [episodes]
        initial_states: Digests of the states in which they began. [episodes]
    """

    prompts: list[list[int]] = field(default_factory=list)
    responses: list[list[int]] = field(default_factory=list)
    successes: list[bool] = field(default_factory=list)
    initial_states: list[str] = field(default_factory=list)


def imitate(
    config: TinyPolicy,
    environment: EnvironmentSettings,
    agent: AgentConfig,
    max_response_tokens: int,
    excluded: frozenset[str],
    folder: str | Path,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Make the embedded policy, teach it to imitate demonstrations, and save it.

    Args:
        config: The policy's size, the demonstrations and the schedule.
        environment: What is demonstrated.
        agent: How observations become prompts, as in the rollouts.
        max_response_tokens: As in the rollouts; no demonstrated response is longer.
        excluded: Digests of initial states that are never demonstrated (those of the evaluation panels).
        folder: Where config, weights (safetensors), tokenizer and the demonstrated initial states go.
        on_progress: Called with (steps done, steps in all).

    Returns:
        Headline numbers: `num_turns` and `num_episodes` demonstrated, `demonstration_success` (share of those
        episodes), `loss` (nats a response token) and `token_accuracy` over the last tenth of the steps (absent with
        no steps), `num_parameters`, `vocabulary_size`.

    Raises:
        ConfigError: If the environment has no demonstrator, or a demonstrated response is longer than allowed.
    """
    tokenizer = make_tokenizer(unknown_speech(config, environment))
    model = make_model(config, tokenizer)
    needed = min(config.demonstration_turns, config.warm_start_steps * config.warm_start_batch_size)
    demonstrations = demonstrate_turns(config, environment, agent, max_response_tokens, excluded, tokenizer, needed)
    learned = _learn(model, demonstrations, config, on_progress)
    save_policy(model, tokenizer, folder)
    write_states(folder, demonstrations.initial_states)
    return {
        "num_turns": float(len(demonstrations.prompts)),
        "num_episodes": float(len(demonstrations.successes)),
        "demonstration_success": float(np.mean(demonstrations.successes)) if demonstrations.successes else 0.0,
        "num_parameters": float(model.num_parameters()),
        "vocabulary_size": float(len(tokenizer)),
        **learned,
    }


def demonstrate_turns(
    config: TinyPolicy,
    environment: EnvironmentSettings,
    agent: AgentConfig,
    max_response_tokens: int,
    excluded: frozenset[str],
    tokenizer: PreTrainedTokenizerFast,
    num_turns: int,
) -> Demonstrations:
    """Play whole episodes by demonstration until there are at least `num_turns` turns.

    Where the environment has lessons (`Environment.lessons`), their settings are played in turn.

    Raises:
        ConfigError: As `imitate`.
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
        observation, _ = world.reset(seed=env_seed, dynamics_seed=dynamics_seed(env_seed, 0))
        played.initial_states.append(world.state_digest())
        rng = python_random(config.seed, "demonstrations", episode)
        context = contexts.start(world)
        actions_left, reward, is_over = agent.max_actions, None, False
        for _ in range(agent.max_turns):
            context.observe(observation, actions_left=actions_left, reward=reward, had_invalid_action=False)
            decision = player(world, config.demonstration_skill, rng)
            # What is said is cut at a turn's limit, which never changes, but not at the actions left, which the
            # 'state' prompt does not show; those are only not carried out, as in a rollout.
            actions = decision.actions[: agent.max_actions_per_turn]
            text = format_response(decision.think, actions, agent)
            response_ids = [*tokenizer.encode(text, add_special_tokens=False), contexts.stop_token_ids[0]]
            _check_length(response_ids, max_response_tokens)
            played.prompts.append(list(context.token_ids))
            played.responses.append(response_ids)
            context.respond(response_ids)
            if decision.is_resigned:  # in Sokoban two turns of five would be such, with nothing to learn in them
                break
            reward = 0.0
            for action in actions[:actions_left]:
                observation, gain, terminated, truncated, _ = world.step(action)
                reward += gain
                actions_left -= 1
                is_over = terminated or truncated
                if is_over:
                    break
            if is_over or actions_left == 0:
                break
        played.successes.append(world.is_success)
    return played


def _check_length(response_ids: list[int], max_response_tokens: int) -> None:
    if len(response_ids) > max_response_tokens:
        raise ConfigError(
            f"a demonstrated response takes {len(response_ids)} tokens, more than rollout.max_response_tokens = "
            f"{max_response_tokens}: raise that to at least {len(response_ids)}"
        )


def _learn(
    model: Qwen2ForCausalLM,
    demonstrations: Demonstrations,
    config: TinyPolicy,
    on_progress: Callable[[int, int], None] | None,
) -> dict[str, float]:
    """Train in place on `warm_start_steps` batches; nothing at all with 0 steps."""
    steps = config.warm_start_steps
    if steps == 0:
        return {}
    schedule = OptimiserConfig(
        type="muon",
        matrix_learning_rate=config.matrix_learning_rate,
        momentum=0.95,
        learning_rate=config.learning_rate,
        beta2=0.98,
        warmup_iterations=20,
        decay="linear",
        final_fraction=0.05,
    )
    optimiser = ModelOptimiser(model, schedule)
    batches = _batches(len(demonstrations.prompts), config.warm_start_batch_size, derive_seed(config.seed, "batches"))
    losses, accuracies = [], []
    model.train()
    with _torch_threads(1), ThreadPoolExecutor(_PARTS, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        for step in range(steps):
            loss, accuracy = _accumulate_gradient(model, demonstrations, next(batches), workers)
            with _torch_threads(_PARTS):
                optimiser.step(learning_rate_factor(schedule, step, steps))
            losses.append(loss)
            accuracies.append(accuracy)
            if on_progress is not None:
                on_progress(step + 1, steps)
    model.eval()
    tail = max(1, steps // 10)
    return {"loss": float(np.mean(losses[-tail:])), "token_accuracy": float(np.mean(accuracies[-tail:]))}


@contextmanager
def _torch_threads(number: int) -> Iterator[None]:
    """The last bits of a sum depend on how many threads share it, so their number must not be the machine's."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _accumulate_gradient(
    model: Qwen2ForCausalLM, demonstrations: Demonstrations, rows: list[int], workers: ThreadPoolExecutor
) -> tuple[float, float]:
    """Set the gradient of the batch's loss: the mean over its response tokens of -log p(token | all before it).

    The batch is cut into its shorter and its longer rows, which are computed side by side and padded apart.

    Returns:
        The loss, and the share of response tokens that were the most probable ones.
    """
    rows = sorted(rows, key=lambda row: len(demonstrations.prompts[row]) + len(demonstrations.responses[row]))
    num_tokens = sum(len(demonstrations.responses[row]) for row in rows)
    cut = -(-len(rows) // _PARTS)
    parts = [rows[start : start + cut] for start in range(0, len(rows), cut)]
    parameters = list(model.parameters())

    def learn(part: list[int]) -> tuple[float, int, tuple[torch.Tensor, ...]]:
        loss, num_right = _response_loss(model, demonstrations, part)
        return loss.item(), num_right, torch.autograd.grad(loss / num_tokens, parameters)

    losses, counts, gradients = zip(*workers.map(learn, parts), strict=True)
    for parameter, *shares in zip(parameters, *gradients, strict=True):
        parameter.grad = sum(shares[1:], start=shares[0])
    return sum(losses) / num_tokens, sum(counts) / num_tokens


def _response_loss(
    model: Qwen2ForCausalLM, demonstrations: Demonstrations, rows: list[int]
) -> tuple[torch.Tensor, int]:
    """Sum of -log p over the rows' response tokens, and how many of them were the most probable ones.

    Logits are computed at the R positions that predict a response token only. Padding stands on the right, where no
    causal attention looks, so no attention mask is needed.
    """
    tokens = [demonstrations.prompts[row] + demonstrations.responses[row] for row in rows]
    assert model.config.pad_token_id is not None
    ids_BT = torch.full((len(rows), max(map(len, tokens))), model.config.pad_token_id)
    predicts_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids_BT[i, : len(tokens[i])] = torch.tensor(tokens[i])
        predicts_BT[i, len(demonstrations.prompts[row]) - 1 : len(tokens[i]) - 1] = True
    hidden_BT = model.model(input_ids=ids_BT, use_cache=False).last_hidden_state
    logits_RV = model.lm_head(hidden_BT[predicts_BT])
    targets_R = ids_BT.roll(-1, dims=1)[predicts_BT]
    num_right = int((logits_RV.detach().argmax(-1) == targets_R).sum())
    return F.cross_entropy(logits_RV, targets_R, reduction="sum"), num_right


def _batches(num_rows: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Row numbers of one batch after the other, without end: no row again before all whole batches of a pass.

    Rows of unlike length stay mixed. Sorting them by length saves a seventh of the padding, but then a batch holds
    short answers or long ones only, and the long ones, which are the hard ones, were learned much worse.
    """
    random = np.random.Generator(np.random.Philox(seed))
    size = min(batch_size, num_rows)
    while True:
        order = random.permutation(num_rows)
        for start in range(0, num_rows - size + 1, size):
            yield order[start : start + size].tolist()
