"""Settings that are valid and out of place: most, with a pretrained model, which would learn nothing.

settings, lengths of the first prompts -> sentences that each end with what to set
"""

from collections.abc import Sequence

from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.context_fit import ContextFit, context_fits

MAX_LEARNING_RATE = 1e-4
"""Largest usual learning rate of AdamW when all weights of a pretrained model are trained; ten times it with LoRA.
Published runs at 0.5B to 3B use 1e-6, ours at 135M 3e-5."""
LORA_FACTOR = 10
"""Ratio of the learning rates of LoRA and full training (RAGEN, App. C)."""
TINY_PARAMETERS = 20_000_000
"""Policies below this size are taken for exported embedded ones, with which the embedded policy's settings belong."""


def usual_learning_rate(num_parameters: int | None, *, is_lora: bool = False) -> float:
    """Return a learning rate of AdamW that is usual for RL on a model of this size (docs/models.md)."""
    size = num_parameters or 0
    rate = 1e-6 if size >= 1_000_000_000 else 1e-5 if size >= 300_000_000 or num_parameters is None else 3e-5
    return rate * LORA_FACTOR if is_lora else rate


def advise(config: StarPOConfig, fits: Sequence[ContextFit], num_parameters: int | None = None) -> list[str]:
    """List what is out of place with this policy.

    Args:
        config: Settings of the run.
        fits: Its prompts, from `context_fits`; empty if the model is not on this machine.
        num_parameters: Size of the policy; None if unknown.
    """
    longest = max(fits, key=lambda fit: fit.num_needed, default=None)  # what makes room for it does for all
    short = [longest.shortage] if longest and longest.shortage else []
    of_any_policy = [*short, *_of_the_schedule(config)]
    is_pretrained = isinstance(config.policy, PretrainedPolicy)
    if not is_pretrained or (num_parameters is not None and num_parameters < TINY_PARAMETERS):
        return of_any_policy
    return [*_of_the_prompt(config), *_of_the_optimiser(config, num_parameters), *of_any_policy]


def _of_the_schedule(config: StarPOConfig) -> list[str]:
    return [
        f"schedule: the change at iteration {change.iteration} comes after the run's end: --set iterations=N, "
        f"with N above {change.iteration}"
        for change in config.schedule
        if change.iteration >= config.iterations
    ]


def _of_the_prompt(config: StarPOConfig) -> list[str]:
    assert isinstance(config.policy, PretrainedPolicy)
    if config.agent.prompt != "state" or config.policy.fine_tuning is not None:
        return []
    full = config.model_copy(update={"agent": config.agent.model_copy(update={"prompt": "full"})})
    needed = max((fit.within_positions(fit.num_needed) for fit in context_fits(full)), default=0)
    has_room = needed <= config.rollout.max_context_tokens
    return [
        "agent.prompt = 'state' shows the observation alone, without rules, actions or the form of an answer, which "
        "only a warm start teaches: --set agent.prompt=full"
        + ("" if has_room else f" --set rollout.max_context_tokens={needed}, as that prompt is longer")
    ]


def _of_the_optimiser(config: StarPOConfig, num_parameters: int | None) -> list[str]:
    optimiser, lora = config.update.optimiser, config.update.lora
    highest = MAX_LEARNING_RATE * (LORA_FACTOR if lora else 1)
    rate = usual_learning_rate(num_parameters, is_lora=lora is not None)
    usual = f"--set update.optimiser.type=adamw --set update.optimiser.learning_rate={rate:g}"
    if optimiser.type == "muon":
        return [
            f"update.optimiser.type = 'muon' at matrix_learning_rate = {optimiser.matrix_learning_rate:g} is the "
            f"embedded policy's, and moves a pretrained model away from what it knows: {usual}"
        ]
    if optimiser.learning_rate > highest:
        return [
            f"update.optimiser.learning_rate = {optimiser.learning_rate:g} is high for a pretrained model "
            f"(at most {highest:g}{' with LoRA' if lora else ''}): {usual}"
        ]
    return []
