"""The objective of an update: what is maximised, as a composition of parts that are chosen by name.

rewards - KL -> estimator -> scale, whitening, shaping -> advantages   (over the tokens of `advantage_on`)
log-probs -> ratio -> surrogate -> mean                                (over the tokens of `loss_on`)
"""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from starpo.ragen.core.lookup import checked_options, needs, registered
from starpo.ragen.core.registry import ADVANTAGES, SHAPINGS, SURROGATES
from starpo.ragen.core.settings import Settings

Tokens = Literal["all", "think", "answer", "format"]
"""Which response tokens: all, those of the reasoning, of the answer, or what is neither."""


class ObjectiveConfig(Settings):
    """What is maximised."""

    advantage: Annotated[str, *registered(ADVANTAGES)] = "gae"
    """Advantage estimator. With a critic: 'gae' over tokens, 'bi_level_gae' over turns and tokens (VAGEN), 'turn_gae'
    one value a turn (VAGEN Lite, Turn-PPO), 'hierarchical_gae' within and between subgoals (HiPER). Without: 'grpo'
    return minus the group's mean, 'grpo_batch' minus the update's (BRPO), 'rloo' minus the other members', 'opo' minus
    a mean weighted by length, 'remax' minus the greedy rollout's, 'reinforce' the return itself (ARPO), 'reward_to_go'
    what a token is followed by (REINFORCE++), 'otb' that minus a baseline for each place, 'gigpo' and 'hgpo' turns in
    the same state compared as well, 'istar' turns by how much a process reward model prefers them. Presets of whole
    methods: docs/objectives.md."""
    advantage_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of the estimator's own. 'turn_gae': value_at. 'gigpo': step_weight, normaliser, over. 'hgpo': those,
    depth, alpha. 'istar': step_weight. Others have none; one of yours gets them as `inputs.options`."""
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
    """Discount from turn to turn (bi-level, turn-level and hierarchical GAE, GiGPO, HGPO)."""
    lambda_turn: float = Field(1.0, ge=0, le=1)
    """Lambda from turn to turn (bi-level, turn-level and hierarchical GAE)."""
    reward_placement: Literal["turn_end", "trajectory_end"] = "turn_end"
    """Where estimators with a critic find the reward: each turn's on the turn's last response token, or the return as
    a whole on the trajectory's last one (the public code). With gamma = gae_lambda = 1 the first credits a token with
    what was earned from it on, the second with the whole return, so that the critic has to know what was earned before.
    No effect on estimators without a critic, which read returns alone."""
    advantage_on: Tokens = "all"
    """Which response tokens advantages are estimated over; the others have advantage 0, and what they earn is earned by
    the last token before them that takes part. 'think' and 'answer': what is between the tags. 'format': the tags and
    all else. A malformed response is all format. (VAGEN's M_adv.)"""
    loss_on: Tokens = "all"
    """Which response tokens have a loss: surrogate, KL and entropy. Means are over these. (VAGEN's M_loss.)"""
    shaping: list[Annotated[str, *registered(SHAPINGS)]] = Field(default_factory=list)
    """What is done to advantages last, in this order. 'zero': a control, only KL and entropy act. 'asymmetric_clip':
    cut to [-1, 3]. 'by_length': divided by the trajectory's length over the mean. 'by_group_std': times the std of the
    group's returns over the largest. 'by_kept_share', 'by_root_kept_share': times the share of groups that the filter
    kept, or its root. (RAGEN-2.)"""
    ratio: Literal["token", "turn_geometric", "turn_arithmetic", "sequence"] = "token"
    """Whose ratio is clipped: a token's (PPO), the mean over a turn (Turn-PPO, ST-PPO), geometric or arithmetic, or the
    geometric mean over a sequence (GSPO). A sequence is what the model saw as one context: with agent.context = 'full'
    the trajectory, with 'window' a turn."""
    surrogate: Annotated[str, *registered(SURROGATES)] = "ppo"
    """How ratio and advantage make a loss. 'ppo': clipped, the smaller of two. 'dual_clip': bounded where the advantage
    is negative, too. 'loop': bounds symmetric in the log-ratio, from clip_high. 'cispo': clipped weights, every token
    keeps its gradient. 'sapo': a soft gate. 'gmpo': geometric mean of clipped ratios. 'clip_cov', 'kl_cov': tokens that
    take most of the entropy are left out, or held. 'unclipped': importance weights alone. 'sapo', 'gmpo', 'kl_cov' and
    'unclipped' do not read clip_low and clip_high."""
    surrogate_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of the surrogate's own. 'dual_clip': bound. 'sapo': tau_positive, tau_negative. 'gmpo': log_clip.
    'clip_cov': share, low, high. 'kl_cov': share, coefficient. One of yours gets them as `inputs.options`."""
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
    turn_order: Literal["together", "reverse"] = "together"
    """'reverse': every mini-batch takes a step for each turn, the last one first, and the advantages of a turn are
    weighted by how the update has changed the turns after it (SeeUPO, 2602.06554). As many times the steps, and the
    passes to score them."""
    effective_sample_reference: float | None = Field(None, gt=0, le=1)
    """Scale the step by the root of the effective sample size (a share of the trajectories, of their importance weights
    before the update) over this one, at most 1: updates on old rollouts take smaller steps (VCPO). None: off."""

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
                "advantage_scale = 'group' divides by the deviation within a group, and the estimator "
                f"'{self.advantage}' compares no trajectory with its group's: set advantage_scale to 'none' or "
                "'batch', or advantage to 'grpo' or 'rloo'"
            )
        if self.ratio_to == "behaviour" and self.importance_cap is not None:
            raise ValueError(
                "ratio_to = 'behaviour' takes the ratio to the policy that sampled, and importance_cap would correct "
                "for that policy a second time: leave importance_cap out, or set ratio_to = 'update_start'"
            )
        if self.surrogate == "gmpo" and self.ratio != "token":
            raise ValueError(
                "surrogate = 'gmpo' takes the geometric mean of clipped token ratios itself, and "
                f"ratio = '{self.ratio}' would have taken it before: set ratio = 'token'"
            )
        if self.turn_order == "reverse" and (self.ratio == "sequence" or self.surrogate == "gmpo"):
            spanning = "surrogate = 'gmpo'" if self.surrogate == "gmpo" else "ratio = 'sequence'"
            raise ValueError(
                f"turn_order = 'reverse' updates turns one after the other, and {spanning} may span several: set "
                "surrogate = 'ppo', and ratio to 'turn_geometric', 'turn_arithmetic' or 'token'"
            )
        if "zero" in self.shaping and not self.kl_coefficient and not self.entropy_coefficient:
            raise ValueError(
                "shaping = 'zero' leaves KL and entropy to act, and neither has a weight: set kl_coefficient or "
                "entropy_coefficient"
            )
        if self.importance_cap is not None and self.effective_sample_reference is not None:
            raise ValueError(
                "importance_cap corrects tokens for an older policy, and effective_sample_reference scales the whole "
                "step for it: set one of them"
            )
        return self

    @property
    def needs(self) -> frozenset[str]:
        """What the objective cannot do without, of `ragen.core.lookup.NEEDS`."""
        found = needs(ADVANTAGES, self.advantage) | needs(SURROGATES, self.surrogate)
        for name in self.shaping:
            found |= needs(SHAPINGS, name)
        return found | ({"spans"} if {self.advantage_on, self.loss_on} != {"all"} else set())

    @property
    def needs_critic(self) -> bool:
        """Does the estimator need a value function?"""
        return "critic" in needs(ADVANTAGES, self.advantage)

    @property
    def needs_prm(self) -> bool:
        """Does the estimator need a process reward model?"""
        return "prm" in needs(ADVANTAGES, self.advantage)

    @property
    def has_groups(self) -> bool:
        """Does the estimator compare a trajectory with others of its group?"""
        return "groups" in needs(ADVANTAGES, self.advantage)
