"""Time of a run, from a speed that was measured: by a trial, or by a stored run.

ragen.trial.pace, or ragen.evidence.cost --> Pace; settings, Pace --run_seconds--> seconds by kind of work
"""

import math

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.sizing.tokens import count_tokens
from starpo.ragen.trial.pace import Pace


def run_seconds(config: StarPOConfig, pace: Pace) -> dict[str, float]:
    """Estimate the seconds of a run at this pace; storing and rewards are not counted.

    Counted are all attempts that dynamic sampling may need, and all groups that the filter may keep.

    Returns:
        'fine-tuning', 'rollouts', 'updates' and 'evaluations'.
    """
    evaluation = config.evaluation
    num_panels = 1 + math.ceil(config.iterations / evaluation.every) + 2 * len(evaluation.variants)
    num_evaluated = num_panels * evaluation.num_prompts * evaluation.samples_per_prompt
    return {
        "fine-tuning": num_examples(config) * pace.example_s,
        "rollouts": config.num_rollouts * num_played(config) * pace.episode_s,
        "updates": config.iterations * num_passes(config) * pace.pass_s,
        "evaluations": num_evaluated * pace.episode_s,
    }


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

    An update scores all tokens with the policy before and after it (or the share `scored_share`, if the rollout's
    log-probs are those of the policy) and trains `num_epochs` times; the critic trains as often and is scored once; a
    process reward model is scored before and after its single step, the reference once. Activation checkpointing adds a
    forward pass to training, and nothing to scoring.
    """
    num_trained = update.num_epochs * (1 + update.needs_critic) + update.needs_prm
    num_scored = 2 * update.scored_share + update.needs_critic + 2 * update.needs_prm + (update.kl_coefficient > 0)
    recomputed = 4 / 3 if update.activation_checkpointing else 1.0
    return recomputed * num_trained + num_scored / 3
