"""The objective of an update, composed of parts that are chosen by name.

rewards - KL -> estimator -> scale, whitening, shaping -> advantages   (over the tokens of `advantage_on`)
log-probs -> ratio -> surrogate -> mean                                (over the tokens of `loss_on`)
"""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from starpo.ragen.config.companion import CompanionDeclaration, declared_companions
from starpo.ragen.core.lookup import NEEDS, checked_options, needs, registered
from starpo.ragen.core.registry import ADVANTAGES, COMPANIONS, SHAPINGS, SURROGATES, TURN_ORDERS
from starpo.ragen.core.settings import Settings

Tokens = Literal["all", "think", "answer", "format"]
"""Subset of the response tokens: all, the reasoning, the answer, or everything else."""


class ObjectiveConfig(Settings):
    """The objective that an update maximises."""

    advantage: Annotated[str, *registered(ADVANTAGES)] = "gae"
    """Advantage estimator. With a critic: 'gae' over tokens, 'bi_level_gae' over turns and tokens (VAGEN), 'turn_gae'
    with one value per turn (VAGEN Lite, Turn-PPO), 'hierarchical_gae' within and between segments. Without:
    'grpo' return minus the group mean, 'grpo_batch' minus the update's mean (BRPO), 'rloo' minus the mean of the other
    members, 'maxrl' minus the group mean and over it, 'gdpo' the same of each component of the reward over its own
    deviation, 'opo' minus a length-weighted mean, 'remax' minus the return of the greedy rollout, 'reinforce' the
    return itself (ARPO), 'reward_to_go' the rewards from a token on (REINFORCE++), 'otb' reward-to-go minus a baseline
    per token position, 'gigpo' and 'hgpo' also compare turns in the same state, 'istar' also compares turns by the
    rewards of a process reward model. 'monte_carlo': the true advantage of each turn, measured by continuations from
    the states before and after it (VinePPO). Presets of complete methods: docs/objectives.md."""
    advantage_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the estimator. 'turn_gae': value_at. 'gigpo': step_weight, normaliser, over. 'hgpo': the same, plus
    depth and alpha. 'istar': step_weight. 'gdpo': weights. 'monte_carlo': continuations. The other built-in ones have
    none; a custom estimator receives them as `inputs.options`."""
    advantage_scale: Literal["none", "group", "batch"] = "none"
    """Divisor of the advantages. 'none': no scaling. 'group': the standard deviation of the group's returns (GRPO);
    needs an estimator that works on groups. 'batch': the standard deviation of the centred returns of all kept
    trajectories. Not allowed with estimators that divide themselves: 'istar', 'maxrl', 'gdpo', and 'gigpo' and 'hgpo'
    with normaliser = 'std'."""
    std_ddof: Literal[0, 1] = 0
    """Delta degrees of freedom of the standard deviations in `advantage_scale` and `should_whiten`: the sum of squares
    is divided by n (0) or by n - 1 (1, the public code)."""
    should_whiten: bool = False
    """Normalise the advantages of all response tokens of the update to mean 0 and standard deviation 1."""
    gamma: float = Field(1.0, ge=0, le=1)
    """Token-level discount (GAE, bi-level GAE, 'reward_to_go', 'otb')."""
    gae_lambda: float = Field(1.0, ge=0, le=1)
    """Token-level lambda (GAE, bi-level GAE)."""
    gamma_turn: float = Field(1.0, ge=0, le=1)
    """Turn-level discount (bi-level, turn-level and hierarchical GAE, GiGPO, HGPO)."""
    lambda_turn: float = Field(1.0, ge=0, le=1)
    """Turn-level lambda (bi-level, turn-level and hierarchical GAE)."""
    reward_placement: Literal["turn_end", "trajectory_end"] = "turn_end"
    """Position of the reward for estimators with a critic. 'turn_end': each turn's reward on the turn's last response
    token. 'trajectory_end': the whole return on the trajectory's last response token (the public code). With gamma =
    gae_lambda = 1 the first credits a token with the rewards from it on, the second with the whole return, so that the
    critic has to know the rewards earned before. No effect on estimators without a critic: rewards are then always at
    turn ends."""
    advantage_on: Tokens = "all"
    """Response tokens over which advantages are estimated; all others have advantage 0, and their rewards move to the
    last selected token before them. 'think' and 'answer': the text between the tags. 'format': the tags and everything
    else. A malformed response counts as 'format' entirely. (VAGEN's M_adv.)"""
    loss_on: Tokens = "all"
    """Response tokens that enter the loss: surrogate, KL and entropy. Means are over these tokens, those of the ratio
    of a turn or a sequence too. (VAGEN's M_loss.)"""
    shaping: list[Annotated[str, *registered(SHAPINGS)]] = Field(default_factory=list)
    """Final transformations of the advantages, applied in this order. 'zero': a control in which only KL and entropy
    act. 'asymmetric_clip': clipped to [-1, 3]. 'by_length': divided by the trajectory's length relative to the mean.
    'by_group_std': multiplied by the std of the group's returns relative to the largest. 'by_kept_share',
    'by_root_kept_share': multiplied by the share of groups that the filter kept, or by its square root. (RAGEN-2.)"""
    distillation_coefficient: float = Field(0.0, ge=0, le=100)
    """Weight of the divergence from the teacher (on-policy distillation, 2306.13649). 0: none. Needs `teacher`."""
    distillation: Literal["sampled", "reverse_kl", "forward_kl"] = "sampled"
    """'sampled': log pi_T - log pi_old of the sampled token, an advantage, whose gradient estimates the reverse KL's.
    'reverse_kl', 'forward_kl': KL(pi || pi_T), KL(pi_T || pi), of the `teacher.top_k` likeliest tokens, in the loss."""
    reward_coefficient: float = Field(1.0, ge=0, le=100)
    """Weight of the reward's advantages beside those of the teacher. 0: the policy learns from the teacher alone."""
    ratio: Literal["token", "turn_geometric", "turn_arithmetic", "sequence"] = "token"
    """Unit whose probability ratio is clipped: a token (PPO), a turn (geometric or arithmetic mean of its token ratios;
    Turn-PPO, ST-PPO), or a sequence (geometric mean; GSPO). A sequence is what the model saw as one context: a turn if
    the context restarts in every turn (agent.context = 'window', agent.earlier_thoughts = 'dropped'), else the
    trajectory."""
    surrogate: Annotated[str, *registered(SURROGATES)] = "ppo"
    """Loss as a function of ratio and advantage. 'ppo': clipped, the smaller of the two terms. 'dual_clip': also
    bounded where the advantage is negative. 'loop': bounds symmetric in the log-ratio, from clip_high. 'cispo': clipped
    weights; every token keeps its gradient. 'sapo': a soft gate. 'gmpo': geometric mean of clipped ratios. 'clip_cov',
    'kl_cov': the tokens that reduce entropy most are excluded, or penalised for moving. 'dppo_tv', 'dppo_kl': tokens
    whose probability has moved too far are excluded, by total variation or KL. 'unclipped': importance weights alone.
    'sapo', 'gmpo', 'kl_cov' and 'unclipped' ignore clip_low and clip_high."""
    surrogate_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the surrogate. 'dual_clip': bound. 'sapo': tau_positive, tau_negative. 'gmpo': log_clip. 'clip_cov':
    share, low, high. 'kl_cov': share, coefficient. A custom surrogate receives them as `inputs.options`."""
    uncertain_share: float = Field(1.0, gt=0, le=1)
    """Share of the tokens of a mini-batch, those at which the policy was most uncertain before the update, on which the
    surrogate acts (0.2 in "Beyond the 80/20 Rule"). The others stay in the means, with their KL and entropy. 1: all."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    """Lower clipping bound of the ratio: 1 - clip_low. With 'dppo_tv' and 'dppo_kl', the largest divergence of a token
    that has become less probable: a difference of probabilities, or nats."""
    clip_high: float = Field(0.2, gt=0, le=10)
    """Upper clipping bound of the ratio: 1 + clip_high. With 'dppo_tv' and 'dppo_kl' as clip_low, of a token that has
    become more probable."""
    kl_coefficient: float = Field(0.0, ge=0, le=100)
    """Weight of the KL divergence to the reference policy (the run's first checkpoint). 0: no reference is loaded."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    """Per-token estimator of that divergence. 'k1', the log-ratio, belongs in the reward: in a loss its gradient does
    not depend on the reference and has expectation 0, so it only adds noise and does not constrain the policy. 'k2' and
    'k3' act in the loss."""
    kl_placement: Literal["loss", "reward"] = "loss"
    """'loss': add the divergence to the loss. 'reward': subtract it from the token's reward before advantages are
    estimated. 'k1' in the loss, as in the public code, reports the divergence but does not penalise it."""
    should_weigh_kl: bool = False
    """Multiply that divergence in the loss by the token's ratio (`ratio_to`): with 'k3' its value and its gradient are
    then those of KL(policy || reference), whoever sampled (DeepSeek-V3.2)."""
    entropy_coefficient: float = Field(0.0, ge=0, le=10)
    """Weight of the entropy bonus, the policy's mean token entropy."""
    entropy_target: float | None = Field(None, gt=0)
    """Entropy, nats per token, below which the policy should not fall: the bonus then acts only while the entropy
    before the update is at most this, with a weight that begins at entropy_coefficient, rises by entropy_step after
    every update that began below, and falls by it after every other, between 0 and 1 (Skywork-OR1). The weight is kept
    in the checkpoint. None: a constant weight."""
    entropy_step: float = Field(0.005, gt=0, le=1)
    """Change of that weight per update. No effect without entropy_target."""
    observation_coefficient: float = Field(0.0, ge=0, le=10)
    """Weight of the cross-entropy on observations: the mean, over the tokens between a context's first response and its
    last that the policy did not sample, of minus their log-prob, so that it learns what its actions lead to (ECHO;
    prime-rl weighs such tokens too). 0: none. Needs contexts of several turns, and an estimator without critic."""
    aggregation: Literal["token_mean", "sequence_mean", "dr_grpo"] = "sequence_mean"
    """Aggregation of the loss. 'token_mean': the mean over all tokens. 'sequence_mean': the mean over trajectories of
    the mean over their tokens (the paper's Eq. 4). 'dr_grpo': the sum over tokens divided by trajectories times
    `max_response_tokens` (Dr. GRPO)."""
    ratio_to: Literal["update_start", "behaviour"] = "update_start"
    """Denominator of the clipped ratio. 'update_start': the policy at the start of the update, so the clip bounds the
    step. 'behaviour': the policy that sampled the token, so the clip bounds the distance to the data. They differ if
    the rollout was sampled by an earlier policy (online_k > 1, rollout.staleness), or by an engine whose probabilities
    differ from the learner's."""
    importance_cap: float | None = Field(None, ge=1.0)
    """Truncated importance sampling: multiply a token's loss by min(old / behaviour, cap). None: off. Not allowed with
    ratio_to = 'behaviour', whose ratio already contains that correction."""
    importance_unit: Literal["token", "sequence", "sequence_geometric"] = "token"
    """Unit of that weight: a token; a sequence (as in `ratio`), by the product of its tokens' ratios, which is unbiased
    and varies with the length; or by their geometric mean."""
    importance_floor: float | None = Field(None, gt=0, le=1)
    """Smallest weight. None: 0."""
    importance_outside: Literal["truncate", "mask"] = "truncate"
    """Treatment of weights outside [importance_floor, importance_cap]. 'truncate': the nearest bound. 'mask': the
    tokens have no surrogate; with a floor this is IcePop's band."""
    negative_max_kl: float | None = Field(None, gt=0)
    """Leave out tokens with a negative advantage in sequences whose mean log(behaviour / policy), nats per token, is
    above this: the policy has left them already (DeepSeek-V3.2; 0.5 is a start). They count as clipped. None: off."""
    turn_order: Annotated[str, *registered(TURN_ORDERS)] = "together"
    """'together': all turns in one step. 'reverse': every mini-batch takes one step per turn, the last turn first, and
    the advantages of a turn are weighted by how the update has changed the turns after it (SeeUPO, 2602.06554).
    Multiplies the number of steps and adds forward passes to score them."""
    effective_sample_reference: float | None = Field(None, gt=0, le=1)
    """Scale the step by min(1, sqrt(ESS / effective_sample_reference)), where ESS is the effective sample size of the
    trajectories' importance weights before the update, as a share of the trajectories: updates on old rollouts take
    smaller steps (VCPO). None: off."""

    @field_validator("advantage_options")
    @classmethod
    def _are_the_estimators(cls, options: dict[str, JsonValue], info: ValidationInfo) -> dict[str, Any]:
        return checked_options(ADVANTAGES, info.data["advantage"], options) if "advantage" in info.data else options

    @field_validator("surrogate_options")
    @classmethod
    def _are_the_surrogates(cls, options: dict[str, JsonValue], info: ValidationInfo) -> dict[str, Any]:
        return checked_options(SURROGATES, info.data["surrogate"], options) if "surrogate" in info.data else options

    @model_validator(mode="after")
    def _parts_fit_together(self) -> "ObjectiveConfig":
        if self.advantage_scale == "group" and not self.has_groups:
            raise ValueError(
                "advantage_scale = 'group' divides by the deviation within a group, but the estimator "
                f"'{self.advantage}' does not compare a trajectory with its group: set advantage_scale to 'none' or "
                "'batch', or advantage to 'grpo' or 'rloo'"
            )
        if self.advantage_scale != "none" and self._is_standardised:
            inner = ", or advantage_options.normaliser to 'none'" if "normaliser" in self.advantage_options else ""
            raise ValueError(
                f"advantage = '{self.advantage}' already divides its advantages by a number of its own, so "
                f"advantage_scale = '{self.advantage_scale}' would divide them a second time: set advantage_scale to "
                f"'none'{inner}"
            )
        if "components" in self.needs and self.kl_coefficient > 0 and self.kl_placement == "reward":
            raise ValueError(
                f"advantage = '{self.advantage}' reads the components of the reward, and kl_placement = 'reward' "
                "subtracts the divergence from their sum: set kl_placement = 'loss'"
            )
        if "credits" in self.needs and self.kl_coefficient > 0 and self.kl_placement == "reward":
            raise ValueError(
                f"advantage = '{self.advantage}' measures what the rewards alone pay, and kl_placement = 'reward' "
                "subtracts the divergence from them: set kl_placement = 'loss'"
            )
        if self.ratio_to == "behaviour" and self.importance_cap is not None:
            raise ValueError(
                "ratio_to = 'behaviour' takes the ratio to the sampling policy, so importance_cap would correct for "
                "that policy a second time: leave importance_cap out, or set ratio_to = 'update_start'"
            )
        if self.importance_cap is None and self.has_unit_importance:
            raise ValueError(
                "importance_unit, importance_floor and importance_outside shape the importance weights, and "
                "importance_cap = None computes none: set importance_cap (2 is a common value), or leave them out"
            )
        of_reverse_kl = self.kl_estimator == "k3" and self.kl_placement == "loss"
        if self.should_weigh_kl and not (self.kl_coefficient and of_reverse_kl):
            raise ValueError(
                "should_weigh_kl = true makes 'k3' in the loss an estimate of the reverse KL, but kl_coefficient = "
                f"{self.kl_coefficient:g}, kl_estimator = '{self.kl_estimator}', kl_placement = '{self.kl_placement}': "
                "set kl_coefficient > 0, 'k3' and 'loss', or leave it out"
            )
        if self.surrogate == "gmpo" and self.ratio != "token":
            raise ValueError(
                "surrogate = 'gmpo' takes the geometric mean of clipped token ratios itself, but "
                f"ratio = '{self.ratio}' combines them before: set ratio = 'token'"
            )
        if self.surrogate in ("dppo_tv", "dppo_kl") and self.ratio != "token":
            raise ValueError(
                f"surrogate = '{self.surrogate}' judges each token by its own probabilities, but ratio = "
                f"'{self.ratio}' is that of several: set ratio = 'token'"
            )
        if self.turn_order != "together" and (self.ratio == "sequence" or self.surrogate == "gmpo"):
            spanning = "surrogate = 'gmpo'" if self.surrogate == "gmpo" else "ratio = 'sequence'"
            raise ValueError(
                f"turn_order = '{self.turn_order}' updates turns one after the other, and {spanning} may span several: "
                "set surrogate = 'ppo', and ratio to 'turn_geometric', 'turn_arithmetic' or 'token'"
            )
        if self.entropy_target is not None and self.entropy_coefficient > 1:
            raise ValueError(
                f"entropy_coefficient = {self.entropy_coefficient:g} is the first weight of a bonus that aims at "
                "entropy_target, between 0 and 1: set it to at most 1"
            )
        if "zero" in self.shaping and not (
            self.kl_coefficient or self.has_entropy_bonus or self.observation_coefficient
        ):
            raise ValueError(
                "shaping = 'zero' leaves only the KL and entropy terms, and neither has a weight: set "
                "kl_coefficient or entropy_coefficient"
            )
        if self.reward_coefficient != 1 and self.distillation_coefficient == 0:
            raise ValueError(
                f"reward_coefficient = {self.reward_coefficient:g} weighs rewards against what a teacher says, and "
                "distillation_coefficient = 0 leaves that out: set distillation_coefficient, or reward_coefficient = 1"
            )
        if self.distills_top_tokens and self.observation_coefficient > 0:
            raise ValueError(f"distillation = '{self.distillation}' and observation_coefficient add tokens: set one")
        if self.importance_cap is not None and self.effective_sample_reference is not None:
            raise ValueError(
                "importance_cap corrects each token for an older policy, and effective_sample_reference scales the "
                "whole step for it: set only one of them"
            )
        return self

    @model_validator(mode="after")
    def _observations_fit(self) -> "ObjectiveConfig":
        if self.observation_coefficient > 0:
            beside = [f"the {one.name} beside it" for one in self.companions if one.passes.trained_beside]
            beside += [f"turn_order = '{self.turn_order}'"] if self.turn_order != "together" else []
            if beside:
                raise ValueError(
                    f"observation_coefficient = {self.observation_coefficient:g} adds observations to the passes of a "
                    f"step, and {beside[0]} takes passes of responses alone: set observation_coefficient = 0, or an "
                    "estimator without critic and turn_order = 'together'"
                )
        return self

    @model_validator(mode="after")
    def _companions_can_be_loaded(self) -> "ObjectiveConfig":
        if any(not COMPANIONS.is_built_in(word) for word in self.needs - NEEDS):
            declared_companions(self.needs)
        return self

    @property
    def needs(self) -> frozenset[str]:
        """Requirements of the objective: words of `ragen.core.lookup.NEEDS`, and companion models."""
        requirements = needs(ADVANTAGES, self.advantage) | needs(SURROGATES, self.surrogate)
        for name in self.shaping:
            requirements |= needs(SHAPINGS, name)
        if {self.advantage_on, self.loss_on} != {"all"}:
            requirements |= {"spans"}
        requirements |= {"teacher"} if self.distillation_coefficient > 0 else set()
        requirements |= {"top_tokens"} if self.distills_top_tokens else set()
        return requirements | {"reference"} if self.kl_coefficient > 0 else requirements

    @property
    def distills_top_tokens(self) -> bool:
        """Whether the loss has the divergence over the teacher's most probable tokens."""
        return self.distillation_coefficient > 0 and self.distillation != "sampled"

    @property
    def has_unit_importance(self) -> bool:
        """Whether importance weights are others than those of single tokens, truncated above."""
        return (self.importance_unit, self.importance_floor, self.importance_outside) != ("token", None, "truncate")

    @property
    def has_entropy_bonus(self) -> bool:
        """Whether the loss has an entropy bonus, though its weight may be 0 at times."""
        return self.entropy_coefficient > 0 or self.entropy_target is not None

    @property
    def companions(self) -> list[CompanionDeclaration]:
        """The models that an update has beside the policy, in a fixed order."""
        return declared_companions(self.needs)

    @property
    def needs_first_checkpoint(self) -> bool:
        """Whether a companion model is the run's first checkpoint, or needs it."""
        return any(companion.is_first_checkpoint for companion in self.companions)

    @property
    def num_continuations(self) -> int:
        """Number of continuations of every state, where the objective needs `credits`: the estimator's option, or 8."""
        number: Any = self.advantage_options.get("continuations", 8)
        return int(number)

    @property
    def needs_critic(self) -> bool:
        """Whether the estimator needs a value function."""
        return "critic" in self.needs

    @property
    def _is_standardised(self) -> bool:
        """Whether the estimator divides by standard deviations, or a mean, itself."""
        return self.advantage in ("istar", "maxrl", "gdpo") or (
            self.advantage in ("gigpo", "hgpo") and self.advantage_options.get("normaliser") == "std"
        )

    @property
    def has_groups(self) -> bool:
        """Whether the estimator compares a trajectory with others of its group."""
        return "groups" in needs(ADVANTAGES, self.advantage)
