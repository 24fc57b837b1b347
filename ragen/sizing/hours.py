"""Time of a run, at the speed of a stored one.

ragen.evidence.pace --> Pace; settings, Pace --run_seconds--> seconds by kind of work
"""

import math
from dataclasses import dataclass

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.sizing.tokens import count_tokens


@dataclass(frozen=True)
class Pace:
    """Speed of a policy in an environment on a machine.

    Attributes:
        episode_s: Seconds per episode that is played.
        pass_s: Seconds of a forward and backward pass over an episode.
        example_s: Seconds of a forward and backward pass over an example of fine-tuning.
    """

    episode_s: float
    pass_s: float
    example_s: float


def run_seconds(config: StarPOConfig, pace: Pace) -> dict[str, float]:
    """Estimate the seconds of a run at this pace; storing and rewards are not counted.

    Counted are all attempts that dynamic sampling may need, and all groups that the filter may keep.

    Returns:
        'fine-tuning', 'rollouts', 'updates' and 'evaluations'; 'credit' too if updates train on it.
    """
    seconds = {
        "fine-tuning": num_examples(config) * pace.example_s,
        "rollouts": config.num_rollouts * num_played(config) * pace.episode_s,
        "updates": config.iterations * num_passes(config) * pace.pass_s,
        "evaluations": _num_evaluated(config) * pace.episode_s,
    }
    if "credits" in config.update.needs:
        seconds["credit"] = config.num_rollouts * _num_continued(config) * pace.episode_s
    return seconds


def num_episodes_of(config: StarPOConfig) -> float:
    """Return how many episodes a run plays at most, in rollouts and evaluations."""
    return config.num_rollouts * num_played(config) + _num_evaluated(config)


def _num_evaluated(config: StarPOConfig) -> int:
    evaluation = config.evaluation
    num_panels = 1 + math.ceil(config.iterations / evaluation.every) + 2 * len(evaluation.variants)
    return num_panels * evaluation.num_prompts * evaluation.samples_per_prompt


def _num_continued(config: StarPOConfig) -> float:
    """Return the work of an iteration's continuations, in episodes, at most: each turn has a state of its own.

    Equal states share their continuations, so it is less by as much as trajectories meet.
    """
    tokens, turns = count_tokens(config), config.agent.max_turns
    return tokens.num_trajectories * tokens.kept * config.update.num_continuations * (turns + 1) / 2


def num_examples(config: StarPOConfig) -> int:
    """Return the number of examples that a pretrained policy is fine-tuned on."""
    tuning = config.policy.fine_tuning if config.policy.type == "pretrained" else None
    return tuning.steps * tuning.batch_size if tuning else 0


def num_played(config: StarPOConfig) -> float:
    """Return how many episodes a rollout plays at most, times the responses that a search samples in place of one."""
    tokens = count_tokens(config)
    return tokens.num_trajectories * tokens.sampled


def num_passes(config: StarPOConfig) -> float:
    """Return the work of an update, in forward and backward passes of the policy over an episode, at most."""
    tokens = count_tokens(config)
    return tokens.num_trajectories * tokens.kept * _passes(config.update)


def _passes(update: UpdateConfig) -> float:
    """Return the work of an update per episode: a forward pass is a third of a forward and backward pass.

    An update scores all tokens with the policy before and after it (or the share `scored_share`, before it only if the
    rollout's log-probs are those of the policy) and trains `num_epochs` times; companions declare their passes.
    Activation checkpointing adds a forward pass to training, and nothing to scoring.
    """
    passes = [companion.passes for companion in update.companions]
    num_beside, num_before = (sum(getattr(one, f"trained_{when}") for one in passes) for when in ("beside", "before"))
    num_trained = update.num_epochs * (1 + num_beside) + num_before
    shares = update.scored_share + (update.scored_share if update.dtype == "float32" else 1.0)
    num_scored = shares + sum(one.scored for one in passes) + ("teacher" in update.needs)
    recomputed = 4 / 3 if update.activation_checkpointing else 1.0
    return recomputed * num_trained + num_scored / 3
