"""On-policy distillation: a teacher's log-probs of the tokens that the policy sampled, as advantages."""

from torch import Tensor


def distilled(
    advantages: Tensor,
    teacher_logprobs: Tensor,
    old_logprobs: Tensor,
    mask: Tensor,
    coefficient: float,
    reward_coefficient: float,
) -> Tensor:
    """Add the teacher's advantages to those of the reward (GKD, 2306.13649; MiniLLM, 2306.08543, without its baseline).

        A' = reward_coefficient * A + coefficient * (log pi_T - log pi_old)

    Over samples of pi_old, the mean of the second term is minus the reverse KL(pi_old || pi_T) of a token, and its
    policy gradient is that of minus this divergence. A token is credited with its own divergence alone, not with that
    of the tokens after it.

    Args:
        advantages: Those of the reward, scaled and whitened. All tensors have the same shape.
        teacher_logprobs: Log-probs under the teacher, nats.
        old_logprobs: Log-probs under the policy before the update, nats.
        mask: bool; tokens that have an advantage.
        coefficient: Weight of the teacher's.
        reward_coefficient: Weight of the reward's.

    Returns:
        Advantages, 0 outside the mask.
    """
    return reward_coefficient * advantages + coefficient * mask * (teacher_logprobs - old_logprobs)
