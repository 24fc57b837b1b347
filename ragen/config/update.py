"""Settings of an update: its objective, the optimiser steps, and the learner that takes them (RAGEN, training
settings)."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.learner import LearnerConfig
from starpo.ragen.config.objective import ObjectiveConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.core.lookup import registered, with_tables
from starpo.ragen.core.registry import LEARNERS
from starpo.ragen.core.settings import Settings


class OptimiserConfig(Settings):
    """An optimiser and its learning-rate schedule."""

    type: Literal["adamw", "muon"] = "adamw"
    """'muon' updates weight matrices by orthogonalised momentum (in fp32), and embeddings, norms and biases by
    AdamW."""
    learning_rate: float = Field(1e-6, gt=0, le=1)
    """Peak learning rate of AdamW."""
    matrix_learning_rate: float = Field(5e-3, gt=0, le=1)
    """Peak learning rate of Muon. No effect with 'adamw'."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Momentum of Muon. No effect with 'adamw'."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay rate of AdamW's first moment."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay rate of AdamW's second moment."""
    weight_decay: float = Field(0.0, ge=0, le=1)
    """Decoupled weight decay of AdamW."""
    warmup_iterations: int = Field(0, ge=0)
    """Iterations over which the learning rate rises linearly to its peak. 0: no warm-up."""
    decay: Literal["constant", "linear"] = "constant"
    """'linear' decays from the peak to `final_fraction` of it at the run's last iteration."""
    final_fraction: float = Field(0.1, ge=0, le=1)
    """Final learning rate of 'linear', relative to the peak. No effect with 'constant'."""
    max_gradient_norm: float | None = Field(1.0, gt=0)
    """Maximum gradient norm; larger gradients are scaled down to it. None: no clipping."""


class CriticConfig(Settings):
    """The token-level value function of PPO: the policy's own architecture with a scalar head."""

    optimiser: OptimiserConfig = OptimiserConfig(learning_rate=1e-5)
    """The critic's optimiser."""
    clip_value: float | None = Field(0.5, gt=0)
    """Clipping range, in the loss, of a value around its old value. None: no clipping."""
    warmup_updates: int = Field(0, ge=0)
    """Number of first iterations in which only the critic is trained."""


class PRMConfig(Settings):
    """The implicit process reward model of 'istar', a second policy trained on preferences within groups.

    It learns to prefer the better of two trajectories of a group. A turn is rewarded by how much likelier it is under
    that policy than under the policy being trained."""

    beta: float = Field(0.05, gt=0, le=100)
    """Scale of the implicit rewards, beta times the log-probability ratio of the model to the policy, which the
    preference loss compares. A smaller beta lets the model move further from the policy for the same preference."""
    optimiser: OptimiserConfig | None = None
    """Optimiser of the model, which takes one step per update. None: that of the policy."""


class LoraConfig(Settings):
    """Low-rank adapters (LoRA, arXiv 2106.09685): weights are frozen, and a product of two thin matrices is trained."""

    rank: int = Field(64, ge=1, le=4096)
    """Inner dimension of the product."""
    alpha: float = Field(64.0, gt=0, le=65536)
    """The product is scaled by alpha / rank."""
    targets: list[str] | None = Field(None, min_length=1)
    """Last name components of the linear layers that get an adapter, such as ["q_proj", "v_proj"]. None: all but the
    output layer."""
    seed: int = Field(0, ge=0)
    """Seed of the adapters' initial weights, with which the policy is still unchanged."""


_LATER = (
    "importance_unit",
    "importance_floor",
    "importance_outside",
    "should_weigh_kl",
    "negative_max_kl",
    "uncertain_share",
    "entropy_target",
    "observation_coefficient",
    "distillation_coefficient",
    "distillation",
    "reward_coefficient",
)
"""Settings without which updates were made already: at their defaults they are in no key, so that those are found."""


@with_tables(LEARNERS, "learner")
class UpdateConfig(ObjectiveConfig):
    """An update: its objective and its optimiser steps."""

    search_rows: Literal["refuse", "weigh"] = "refuse"
    """Treatment of responses chosen by search (rollout.search), which the policy would have drawn less often. 'refuse':
    such a run does not start. 'weigh': weight their tokens by an estimate of how much less often."""
    num_epochs: int = Field(1, ge=1, le=100)
    """Passes over the data of an update."""
    minibatch_trajectories: int = Field(0, ge=0, le=1_000_000)
    """E: trajectories per optimiser step. A pass takes the number of steps whose equal parts are closest to E, at least
    one, so that a remainder is spread over all steps: 128 trajectories at E = 32 make four steps, 80 make three (of 27,
    27, 26). 0: num_minibatches sets the number of steps."""
    num_minibatches: int = Field(4, ge=1, le=100_000)
    """Optimiser steps per pass, regardless of the number of trajectories. No effect if minibatch_trajectories is set.
    Either way trajectories are assigned to steps at random and never split."""
    scored_share: float = Field(1.0, gt=0, le=1)
    """Share of the groups, at least one, that the policy scores before and after its steps. Below 1, the log-probs of
    the rollout stand for those of the policy before the first step, and entropy, the gap to the rollout's log-probs and
    the distances from the behaviour and the reference policy are measured on that share only. If a log-prob of the
    share differs from that of the rollout by more than 0.001 nats, as from an engine that is not exact or a rollout
    that is used again, the log-probs before the first step are computed for all; with `dtype` in half precision they
    always are. 1: both passes over everything, a forward pass each."""
    micro_batch_tokens: int = Field(8192, ge=16)
    """Tokens (padding included) per forward and backward pass; it affects gradients only by rounding."""
    optimiser: OptimiserConfig = OptimiserConfig()
    """The policy's optimiser."""
    critic: CriticConfig = CriticConfig()
    """The critic, if the estimator needs one."""
    prm: PRMConfig = PRMConfig()
    """The process reward model, if the estimator needs one."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Dtype of the forward and backward pass; trained weights and optimiser states stay in float32. 'float16' (learner
    'torch') rounds an eighth as much as 'bfloat16': with rollout.torch.dtype = 'float16', log-probs differ less."""
    activation_checkpointing: bool = False
    """Keep only each layer's input for the backward pass and recompute the rest: less memory, a third more time, the
    same numbers."""
    lora: LoraConfig | None = None
    """Train adapters instead of the weights. None: all weights are trained."""
    learner: Annotated[str, *registered(LEARNERS)] = "torch"
    """Implementation of the update: 'torch' in one process, 'deepspeed' in several."""

    @property
    def learner_config(self) -> LearnerConfig:
        """What the learner declares."""
        return getattr(self, self.learner, LearnerConfig())

    @model_validator(mode="after")
    def _learner_fits(self) -> "UpdateConfig":
        if self.dtype == "float16" and self.learner == "deepspeed":
            raise ValueError("update.dtype = 'float16' needs learner = 'torch': set it to 'bfloat16'")
        if self.learner_config.sharding.stage:
            for model, optimiser in self.optimisers.items():
                if optimiser.type == "muon":
                    name = "update.optimiser" if model == "policy" else f"update.{model}.optimiser"
                    raise ValueError(
                        f"{name}.type = 'muon' orthogonalises whole matrices, which learner '{self.learner}' shards "
                        "over ranks: set it to 'adamw', or learner = 'torch'"
                    )
        return self

    @model_validator(mode="after")
    def _scores_suffice(self) -> "UpdateConfig":
        if self.scored_share < 1 and self.uncertain_share < 1:
            raise ValueError(
                f"uncertain_share = {self.uncertain_share:g} needs the entropy of every token before the update, and "
                f"scored_share = {self.scored_share:g} computes it for a part: set scored_share = 1"
            )
        if self.scored_share < 1 and "probabilities" in self.needs:
            raise ValueError(
                f"advantage = '{self.advantage}' needs the probabilities of every token before the update, and "
                f"scored_share = {self.scored_share:g} computes them for a part: set scored_share = 1"
            )
        return self

    @property
    def optimisers(self) -> dict[str, OptimiserConfig]:
        """Trained model ('policy', or a companion's name) -> its optimiser."""
        trained = {one.name: one.optimiser(self) for one in self.companions if one.is_trained}
        return {"policy": self.optimiser, **trained}

    @property
    def is_corrected(self) -> bool:
        """Whether the loss corrects for a policy that sampled the data and is not the one being updated."""
        return self.importance_cap is not None or self.ratio_to == "behaviour"

    def check_fits(self, rollout: RolloutConfig, agent: AgentConfig, reward: RewardConfig) -> None:
        """Check that a rollout provides what the objective needs.

        Raises:
            ValueError: If it does not; the message says what to set.
        """
        if "groups" in self.needs and rollout.group_size == 1:
            raise ValueError(
                f"update.advantage = '{self.advantage}' (or update.shaping) compares members of a group: set "
                "rollout.group_size >= 2"
            )
        if "greedy" in self.needs and (not rollout.num_greedy or reward.normalisation != "none"):
            raise ValueError(
                f"update.advantage = '{self.advantage}' subtracts the return of a greedy rollout of each group: "
                "set rollout.num_greedy = 1 and reward.normalisation = 'none'"
            )
        if "unnormalised" in self.needs and reward.normalisation != "none":
            raise ValueError(
                f"update.advantage = '{self.advantage}' normalises what the rewards pay itself, and "
                f"reward.normalisation = '{reward.normalisation}' does so before: set reward.normalisation = 'none'"
            )
        if self.advantage == "gdpo":
            weights: Any = self.advantage_options["weights"]
            if strangers := sorted(set(weights) - set(reward.components)):
                raise ValueError(
                    f"update.advantage_options.weights names '{strangers[0]}', which is not one of reward.components = "
                    f"{', '.join(reward.components)}"
                )
        if self.observation_coefficient > 0 and (agent.begins_anew or agent.max_turns == 1 or agent.shows_images):
            raise ValueError(
                f"update.observation_coefficient = {self.observation_coefficient:g} learns what follows a response in "
                "its context, which needs text and several turns in one context: set agent.context = 'full', "
                "agent.max_turns >= 2 and an observation of text, or leave it out"
            )
        named = {"update.advantage_on": self.advantage_on, "update.loss_on": self.loss_on}
        for name, tokens in named.items():
            if tokens == "think" and not agent.should_think:
                raise ValueError(f"{name} = 'think', but the agent does not reason: set agent.should_think = true")
        if rollout.staleness > 0 and not self.is_corrected:
            raise ValueError(
                "rollout.staleness = 1 trains on samples of the previous policy: set update.importance_cap, which "
                "truncates the weights that correct for that (2 is a common value), or update.ratio_to = 'behaviour'"
            )
        if rollout.search is not None and self.search_rows == "refuse":
            raise ValueError(
                f"rollout.search.type = '{rollout.search.type}' chooses responses, and update.search_rows = "
                "'refuse' does not train on what was chosen: set update.search_rows = 'weigh' to weight chosen "
                "responses by how much less often the policy samples them, or leave rollout.search out"
            )

    def effective(self) -> dict[str, Any]:
        """Return the settings that enter the update's cache key, as JSON, without most of those that others disable."""
        values = self.model_dump(mode="json")
        idle = {
            "num_minibatches": self.minibatch_trajectories > 0,
            "reward_placement": not self.needs_critic,
            "std_ddof": self.advantage_scale == "none" and not self.should_whiten,
            "kl_estimator": self.kl_coefficient == 0,
            "kl_placement": self.kl_coefficient == 0,
            "prm": "prm" not in self.needs,
            "entropy_step": self.entropy_target is None,
            **{name: name != self.learner for name in LEARNERS},
            **{name: values[name] == type(self).model_fields[name].default for name in _LATER},
        }
        return {name: value for name, value in values.items() if not idle.get(name, False)}
