"""One update: its objective, the optimiser's steps, and the learner that takes them (RAGEN, training settings)."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from starpo.ragen.config.objective import ObjectiveConfig
from starpo.ragen.core.lookup import registered
from starpo.ragen.core.registry import LEARNERS
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


class PRMConfig(Settings):
    """The implicit process reward model of 'istar': a second policy, trained to prefer the better of two trajectories
    of a group. A turn is paid for how much likelier it is under that policy than under the one that played."""

    beta: float = Field(0.05, gt=0, le=100)
    """Log-probabilities times beta are rewards, which are compared; a smaller beta lets it go further from the policy
    for the same preference."""
    optimiser: OptimiserConfig | None = None
    """Its optimiser, which takes one step an update. None: that of the policy."""


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


class UpdateConfig(ObjectiveConfig):
    """One update: what is maximised, and in which steps."""

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
    prm: PRMConfig = PRMConfig()
    """The process reward model, where the estimator needs one."""
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
    def _optimisers_fit_the_learner(self) -> "UpdateConfig":
        if self.learner == "deepspeed":
            for model, optimiser in self.optimisers.items():
                if optimiser.type == "muon":
                    name = "update.optimiser" if model == "policy" else f"update.{model}.optimiser"
                    raise ValueError(
                        f"{name}.type = 'muon' orthogonalises whole matrices, which learner 'deepspeed' cuts up over "
                        "ranks: set it to 'adamw', or learner = 'torch'"
                    )
        return self

    @model_validator(mode="after")
    def _prm_has_a_learner(self) -> "UpdateConfig":
        if self.needs_prm and self.learner != "torch":
            raise ValueError(
                f"advantage = '{self.advantage}' trains a process reward model beside the policy, which learner "
                f"'{self.learner}' cannot: set learner = 'torch'"
            )
        return self

    @property
    def optimisers(self) -> dict[str, OptimiserConfig]:
        """Model that an update trains ('policy', 'critic', 'prm') -> its optimiser."""
        found = {"policy": self.optimiser}
        if self.needs_critic:
            found["critic"] = self.critic.optimiser
        if self.needs_prm:
            found["prm"] = self.prm.optimiser or self.optimiser
        return found

    def effective(self) -> dict[str, Any]:
        """The settings that decide what an update computes, as JSON; those that others make idle are not among them."""
        values = self.model_dump(mode="json")
        idle = {
            "num_minibatches": self.minibatch_trajectories > 0,
            "reward_placement": not self.needs_critic,
            "std_ddof": self.advantage_scale == "none" and not self.should_whiten,
            "kl_estimator": self.kl_coefficient == 0,
            "kl_placement": self.kl_coefficient == 0,
            "prm": not self.needs_prm,
            "deepspeed": self.learner != "deepspeed",
            "search_rows": self.search_rows == "refuse",
        }
        return {name: value for name, value in values.items() if not idle.get(name, False)}
