"""The objective, its optimiser, and the learner that carries it out (RAGEN, objectives and training settings)."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from starpo.ragen.core.registry import ADVANTAGES, LEARNERS, advantage_needs, checked_options, registered
from starpo.ragen.core.settings import Settings


class OptimiserConfig(Settings):
    """One optimiser and its schedule."""

    type: Literal["adamw", "muon"] = "adamw"
    """'muon' updates weight matrices by orthogonalised momentum (in fp32) and leaves embeddings, norms and biases to
    AdamW."""
    learning_rate: float = Field(1e-6, gt=0, le=1)
    """Peak learning rate of AdamW."""
    matrix_learning_rate: float = Field(5e-3, gt=0, le=1)
    """Peak learning rate of Muon. No effect with 'adamw'."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Muon's. No effect with 'adamw'."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW's first moment."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """AdamW's second moment."""
    weight_decay: float = Field(0.0, ge=0, le=1)
    """Decoupled, of AdamW."""
    warmup_iterations: int = Field(0, ge=0)
    """Iterations over which the learning rate rises linearly to its peak. 0: none."""
    decay: Literal["constant", "linear"] = "constant"
    """'linear' falls from the peak to `final_fraction` of it at the run's last iteration."""
    final_fraction: float = Field(0.1, ge=0, le=1)
    """What 'linear' ends at. No effect with 'constant'."""
    max_gradient_norm: float | None = Field(1.0, gt=0)
    """Gradients are scaled down to this norm. None: never."""


class CriticConfig(Settings):
    """The token-level value function of PPO: the policy's own architecture with a scalar head."""

    optimiser: OptimiserConfig = OptimiserConfig(learning_rate=1e-5)
    """The critic's optimiser."""
    clip_value: float | None = Field(0.5, gt=0)
    """Clips how far a value may move from its old one in the loss. None: no clipping."""
    warmup_updates: int = Field(0, ge=0)
    """First iterations in which only the critic learns."""


class LoraConfig(Settings):
    """Low-rank adapters (LoRA, arXiv 2106.09685): the weights stay, and a product of two thin matrices is learnt."""

    rank: int = Field(64, ge=1, le=4096)
    """Inner dimension of the product."""
    alpha: float = Field(64.0, gt=0, le=65536)
    """The product is multiplied by alpha / rank."""
    targets: list[str] | None = Field(None, min_length=1)
    """Last names of the linear layers that get an adapter, such as ["q_proj", "v_proj"]. None: all of them but the
    output layer."""
    seed: int = Field(0, ge=0)
    """Seed of the adapters' first weights; with them the policy is still what it was."""


class DeepSpeedConfig(Settings):
    """How learner 'deepspeed' spreads an update over ranks: processes with one GPU, or one CPU thread, each."""

    num_ranks: int = Field(1, ge=1, le=1024)
    """Processes on this machine; with GPUs at most as many as there are. Sums of gradients depend on it by rounding."""
    zero_stage: Literal[1, 2, 3] = 2
    """What is cut up over ranks: optimiser states (1), gradients too (2), weights too (3)."""
    offload_optimizer: bool = False
    """Keep optimiser states and float32 weights in the host's memory, and take the step there."""


class UpdateConfig(Settings):
    """One update: what is maximised, and in which steps."""

    advantage: Annotated[str, *registered(ADVANTAGES)] = "gae"
    """Advantage estimator. Those that need a critic ('gae', 'bi_level_gae') train one; the others do not."""
    advantage_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of the estimator's own, where it is not a built-in one: it gets them as `inputs.options`."""
    advantage_scale: Literal["none", "group", "batch"] = "none"
    """What advantages are divided by: nothing, the standard deviation of the group's returns (GRPO), or that of all
    kept trajectories' centred returns. 'group' needs an estimator that works on groups."""
    std_ddof: Literal[0, 1] = 0
    """Degrees of freedom that the standard deviations of `advantage_scale` and `should_whiten` take off: 0 divides the
    sum of squares by the number n, 1 (the public code) by n - 1."""
    should_whiten: bool = False
    """Shift and scale the advantages of all response tokens of the update to mean 0 and standard deviation 1."""
    gamma: float = Field(1.0, ge=0, le=1)
    """Discount from token to token (GAE)."""
    gae_lambda: float = Field(1.0, ge=0, le=1)
    """GAE's lambda from token to token."""
    gamma_turn: float = Field(1.0, ge=0, le=1)
    """Discount from turn to turn (bi-level GAE only)."""
    lambda_turn: float = Field(1.0, ge=0, le=1)
    """Lambda from turn to turn (bi-level GAE only)."""
    reward_placement: Literal["turn_end", "trajectory_end"] = "turn_end"
    """Where estimators with a critic find the reward: each turn's on the turn's last response token, or the return as
    a whole on the trajectory's last one (the public code). With gamma = gae_lambda = 1 the first credits a token with
    what was earned from it on, the second with the whole return, so that the critic has to know what was earned before.
    No effect on estimators without a critic, which read returns alone."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """The ratio is clipped below at 1 - clip_low."""
    clip_high: float = Field(0.2, gt=0, le=10)
    """The ratio is clipped above at 1 + clip_high."""
    kl_coefficient: float = Field(0.0, ge=0, le=100)
    """Weight of the KL divergence to the reference policy (the run's first checkpoint). 0: no reference is kept."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Per-token estimator of that divergence. 'k1', the log-ratio, belongs in the reward: its gradient in a loss does
    not know the reference, and its expectation is 0, so that it is noise which holds the policy nowhere. 'k2' and 'k3'
    act in the loss."""
    kl_placement: Literal["loss", "reward"] = "loss"
    """Is it added to the loss, or subtracted from the token's reward before advantages are estimated? With 'k1' in the
    loss, as the public code has it, the divergence is reported and not penalised."""
    entropy_coefficient: float = Field(0.0, ge=0, le=10)
    """Weight of the policy's mean token entropy, which is maximised."""
    aggregation: Literal["token_mean", "sequence_mean", "dr_grpo"] = "sequence_mean"
    """Mean over all tokens; mean over trajectories of the mean over their tokens (the paper's Eq. 4); or the sum over
    tokens divided by trajectories times `max_response_tokens` (Dr. GRPO)."""
    ratio_to: Literal["update_start", "behaviour"] = "update_start"
    """What the policy's probability of a token is divided by, in the ratio that is clipped. 'update_start': that of the
    policy at the start of the update, so the clip bounds the step. 'behaviour': that of the policy that sampled the
    token, so the clip bounds the distance to the data. They differ where a rollout was sampled by an earlier policy
    (online_k > 1, rollout.staleness), or by an engine whose probabilities are not the learner's."""
    importance_cap: float | None = Field(None, ge=1.0)
    """Truncated importance weights: multiply a token's loss by min(old / behaviour, cap). None: off. Refused with
    ratio_to = 'behaviour', whose ratio holds that correction already."""
    search_rows: Literal["refuse", "weigh"] = "refuse"
    """What to make of responses that search chose (rollout.search), which the policy would not have drawn as often.
    'refuse': nothing, such a run does not begin. 'weigh': their tokens count by an estimate of how much less often."""
    num_epochs: int = Field(1, ge=1, le=100)
    """Passes over the data of an update."""
    minibatch_trajectories: int = Field(0, ge=0, le=1_000_000)
    """E: trajectories of an optimiser step. A pass takes as many steps as make equal parts nearest to E, at least one,
    so that a remainder is spread over them: 128 trajectories at E = 32 make four steps, 80 make three (of 27, 27, 26).
    0: num_minibatches says how many steps there are."""
    num_minibatches: int = Field(4, ge=1, le=100_000)
    """Optimiser steps a pass, whatever the number of trajectories. No effect where minibatch_trajectories is set.
    Either way trajectories are dealt out to steps at random and never split."""
    micro_batch_tokens: int = Field(8192, ge=16)
    """Tokens (padding included) of one forward and backward pass; gradients depend on it by rounding only."""
    optimiser: OptimiserConfig = OptimiserConfig()
    """The policy's optimiser."""
    critic: CriticConfig = CriticConfig()
    """The critic, where the estimator needs one."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of forward and backward; trained weights and optimiser state stay in float32."""
    activation_checkpointing: bool = False
    """Keep only each layer's input for the backward pass, and compute the rest again: less memory, a third more time,
    the same numbers."""
    lora: LoraConfig | None = None
    """Train adapters in place of the weights. None: all weights are trained."""
    learner: Annotated[str, *registered(LEARNERS)] = "torch"
    """What carries the update out: 'torch' in one process, 'deepspeed' in several."""
    deepspeed: DeepSpeedConfig = DeepSpeedConfig()
    """Of learner 'deepspeed'; no effect on others."""

    @model_validator(mode="after")
    def _settings_agree(self) -> "UpdateConfig":
        if self.advantage_scale == "group" and not self.has_groups:
            raise ValueError(
                "advantage_scale = 'group' divides by the deviation within a group, and the estimator "
                f"'{self.advantage}' compares no trajectory with its group's: set advantage_scale to 'none' or "
                "'batch', or advantage to 'grpo' or 'rloo'"
            )
        if self.ratio_to == "behaviour" and self.importance_cap is not None:
            raise ValueError(
                "ratio_to = 'behaviour' takes the ratio to the policy that sampled, and importance_cap would correct "
                "for that policy a second time: leave importance_cap out, or set ratio_to = 'update_start'"
            )
        if self.learner == "deepspeed":
            optimisers = {"update.optimiser": self.optimiser, "update.critic.optimiser": self.critic.optimiser}
            for name, optimiser in optimisers.items():
                if optimiser.type == "muon" and (name == "update.optimiser" or self.needs_critic):
                    raise ValueError(
                        f"{name}.type = 'muon' orthogonalises whole matrices, which learner 'deepspeed' cuts up over "
                        "ranks: set it to 'adamw', or learner = 'torch'"
                    )
        return self

    @field_validator("advantage_options")
    @classmethod
    def _are_the_estimators(cls, options: dict[str, JsonValue], info: ValidationInfo) -> dict[str, Any]:
        return checked_options(ADVANTAGES, info.data["advantage"], options) if "advantage" in info.data else options

    def effective(self) -> dict[str, Any]:
        """The settings that decide what an update computes, as JSON; those that others make idle are not among them."""
        values = self.model_dump(mode="json")
        idle = {
            "num_minibatches": self.minibatch_trajectories > 0,
            "reward_placement": not self.needs_critic,
            "std_ddof": self.advantage_scale == "none" and not self.should_whiten,
            "kl_estimator": self.kl_coefficient == 0,
            "kl_placement": self.kl_coefficient == 0,
            "deepspeed": self.learner != "deepspeed",
            "search_rows": self.search_rows == "refuse",
        }
        return {name: value for name, value in values.items() if not idle.get(name, False)}

    @property
    def needs_critic(self) -> bool:
        """Does the estimator need a value function?"""
        return advantage_needs(self.advantage) == "critic"

    @property
    def has_groups(self) -> bool:
        """Does the estimator compare a trajectory with others of its group?"""
        return advantage_needs(self.advantage) == "groups"
