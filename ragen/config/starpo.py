"""`StarPOConfig`: every setting that affects the result of a run."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field, ValidationError, model_validator

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.curriculum import CurriculumConfig
from starpo.ragen.config.diagnostics import DiagnosticsConfig
from starpo.ragen.config.environment import EnvironmentConfig
from starpo.ragen.config.evaluation import EvaluationConfig
from starpo.ragen.config.explanation import explain
from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.policy import PolicyConfig, TinyPolicy
from starpo.ragen.config.precision import Precision, fill_in
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.schedule import Change
from starpo.ragen.config.teacher import TeacherConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.settings import Settings


class StarPOConfig(Settings):
    """Configuration of a StarPO run. Equal configurations give equal artifacts."""

    seed: int = Field(0, ge=0)
    """Seed of all randomness in the run, except the warm start and the evaluation panels, which runs share."""
    fresh: str = Field("", max_length=64)
    """Arbitrary label that is part of the cache key of the first checkpoint, and so of everything derived from it: a
    run with a new label reuses no stored artifact. `starpo train --fresh` generates one. Empty: stored artifacts are
    reused."""
    iterations: int = Field(200, ge=0, le=1_000_000)
    """Number of updates. With `update.optimiser.decay = "linear"` every learning rate depends on it, so changing it
    starts over from the first update."""
    online_k: int = Field(1, ge=1, le=1000)
    """Number of consecutive updates per rollout (Online-k). Each update uses the whole rollout: batch size and number
    of updates stay the same, and fewer rollouts are collected."""
    online_max_kl: float | None = Field(None, gt=0)
    """Collect the next rollout early once KL(behaviour || policy) over the present rollout exceeds this value, in nats
    per token. None: never. No effect with online_k = 1."""
    online_min_effective_sample_size: float | None = Field(None, gt=0, lt=1)
    """Collect the next rollout early once the effective sample size of its response tokens under the policy, as a share
    of their number, falls below this value. None: never. No effect with online_k = 1."""
    checkpoint_every: int | None = Field(None, ge=1)
    """Keep every n-th checkpoint, the first and the last. Those in between are not written if updates are repeatable:
    they can be derived again from the one before, which takes as long as the updates in between. That is also what a
    crash costs: at most n - 1 updates are repeated. 1: keep all. None: all if a checkpoint is small, else every
    10th; then none is dropped that cannot be derived again."""
    precision: Precision | None = Field(None, exclude_if=lambda precision: precision is None)
    """Dtype of the arithmetic of engine 'torch', learner, fine-tuning and teacher: stands for rollout.torch.dtype,
    update.dtype, policy.fine_tuning.dtype and teacher.dtype, unless they are set too. 'auto': for a pretrained policy
    bfloat16 if the machine that reads the settings has a GPU, or a processor that multiplies in it (AMX, AVX512-BF16),
    else float32; the run's record and its keys say which. None: each is as by default."""
    environment: EnvironmentConfig
    """The environment that is trained on."""
    curriculum: CurriculumConfig | None = Field(None, exclude_if=lambda curriculum: curriculum is None)
    """How often rollouts play each part of the environment, by the success of the groups before; panels always play all
    by the environment's shares. None: rollouts play them by these shares too."""
    policy: PolicyConfig = TinyPolicy()
    """Origin of the first checkpoint."""
    agent: AgentConfig = AgentConfig()
    """How observations become prompts, and responses become actions."""
    rollout: RolloutConfig = RolloutConfig()
    """How trajectories are sampled."""
    reward: RewardConfig = RewardConfig()
    """How trajectories are rewarded."""
    filter: FilterConfig = FilterConfig()
    """Which groups are trained on."""
    update: UpdateConfig = UpdateConfig()
    """How the policy is trained on them."""
    teacher: TeacherConfig | None = None
    """Model that scores the tokens that the policy sampled; update.distillation_coefficient says how much they count.
    None: there is none."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """What is evaluated."""
    diagnostics: DiagnosticsConfig = DiagnosticsConfig()
    """Measurements beyond success, and the response to a collapse."""
    schedule: list[Change] = Field([])
    """Changes of settings during training, such as `[{ iteration = 30, set = { "filter.keep" = 1.0 } }]`: from that
    iteration on, the given settings of `rollout`, `reward`, `filter` and `update` apply. `starpo fork` continues from a
    stored checkpoint by adding a change; the artifacts before it keep their keys and are reused. Evaluation settings
    cannot change."""

    def at(self, iteration: int) -> "StarPOConfig":
        """Return the settings of an iteration: those of the run with all changes up to it applied.

        Args:
            iteration: Number of updates done before it.
        """
        changes = [change for change in self.schedule if change.iteration <= iteration]
        if not changes:
            return self
        return self._with(changes)

    def _with(self, changes: Sequence[Change]) -> "StarPOConfig":
        values = self.model_dump(mode="json", exclude={"schedule": True, "diagnostics": {"remedies"}})
        for change in changes:
            values = change.applied(values, StarPOConfig)
        return StarPOConfig.model_validate_json(json.dumps(values))

    @property
    def phases(self) -> list["StarPOConfig"]:
        """Settings at the start of the run and after every change."""
        return [self, *(self.at(change.iteration) for change in self.schedule)]

    @property
    def trains_on_credit(self) -> bool:
        """Whether updates train on the measured credit of turns in some phase."""
        return any("credits" in phase.update.needs for phase in self.phases)

    @property
    def num_rollouts(self) -> int:
        """Number of iterations that collect a rollout, if none is collected early; further attempts are not counted."""
        return -(-self.iterations // self.online_k)

    @property
    def panels(self) -> dict[str, EnvironmentConfig]:
        """Evaluated environments by the name used in reports: the training environment and the variants."""
        return {self.environment.type: self.environment, **self.evaluation.variants}

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the parts of a mixture; empty if the run trains on a single environment."""
        parts = self.environment.tagged()
        return () if parts.get(self.environment.type) is self.environment else tuple(parts)

    @model_validator(mode="after")
    def _precision_is_resolved(self) -> "StarPOConfig":
        # Filled in by `load`, not by a validator before this one: after one, pydantic takes JSON's lists for no tuples.
        if fill_in(vars(self)) != vars(self):
            raise ValueError(
                f"precision = '{self.precision}' has not been filled in, which happens where settings are read: make "
                "them by ragen.config.load, or set each dtype"
            )
        return self

    @model_validator(mode="after")
    def _sections_agree(self) -> "StarPOConfig":
        type_name = self.environment.type
        if type_name in self.evaluation.variants:
            raise ValueError(
                f"evaluation.variants.{type_name}: the panel of the training environment already has that name, which "
                "is its type; give the variant another name"
            )
        types = {tag: part.type for tag, part in self.environment.tagged().items()}
        is_demonstrated = isinstance(self.policy, TinyPolicy) or self.policy.fine_tuning is not None
        self.reward.check_fits(types, self.agent, self.rollout.max_response_tokens)
        self.agent.check_fits(types, self.rollout, is_demonstrated=is_demonstrated)
        self.policy.check_sees(self.agent.observation)
        tuning = None if isinstance(self.policy, TinyPolicy) else self.policy.fine_tuning
        if tuning is not None and tuning.matrix_learning_rate is not None and self.update.learner_config.fine_tunes:
            raise ValueError(
                "policy.fine_tuning.matrix_learning_rate is Muon's, which orthogonalises whole matrices, but learner "
                f"'{self.update.learner}' shards them: leave it out, or set update.learner = 'torch'"
            )
        if self.policy.type == "tiny" and self.agent.shows_images and not self.rollout.engine_config.runs_tiny_vision:
            raise ValueError(
                f"agent.observation = '{self.agent.observation}' shows images, and rollout.engine = "
                f"'{self.rollout.engine}' does not know the architecture of the embedded policy that sees them: set "
                "rollout.engine = 'torch', or take a pretrained policy"
            )
        if self.curriculum is not None:
            self.curriculum.check_fits(type_name, self.tags)
        self.filter.check_fits(self.rollout)
        self.update.check_fits(self.rollout, self.agent, self.reward)
        if self.teacher is not None:
            self.teacher.check_fits(self.environment, self.agent, self.rollout)
            self.teacher.check_suffices(self.update)
        elif "teacher" in self.update.needs:
            raise ValueError(
                f"update.distillation_coefficient = {self.update.distillation_coefficient:g} weighs what a teacher "
                "says, and there is none: set teacher.type (docs/distillation.md)"
            )
        if "credits" in self.update.needs:
            self._check_credit()
        thresholds = (
            self.online_max_kl,
            self.online_min_effective_sample_size,
            self.update.effective_sample_reference,
            self.update.negative_max_kl,
        )
        is_measured = any(threshold is not None for threshold in thresholds)
        if self.rollout.top_p < 1.0 and (self.update.is_corrected or is_measured):
            raise ValueError(
                f"rollout.top_p = {self.rollout.top_p:g} samples from a truncated distribution, so ratios to the "
                "sampling policy (update.importance_cap, update.ratio_to = 'behaviour', "
                "update.effective_sample_reference, update.negative_max_kl, online_max_kl, "
                "online_min_effective_sample_size) would be wrong: set rollout.top_p = 1, or leave those out"
            )
        if self.rollout.staleness > 0 and self.online_k > 1:
            raise ValueError(
                "rollout.staleness = 1 plays the next rollout during the update before it, but whether online_k = "
                f"{self.online_k} needs one is known only after that update; set one of the two, not both"
            )
        return self

    def _check_credit(self) -> None:
        from starpo.ragen.config.credit import check_credit_settings

        if self.diagnostics.gradients_every:
            raise ValueError(
                f"diagnostics.gradients_every = {self.diagnostics.gradients_every} measures the gradients of all "
                f"groups, and update.advantage = '{self.update.advantage}' is measured in those that the filter keeps "
                "alone: set it to 0"
            )
        try:
            check_credit_settings(self.environment, self.agent, self.rollout, self.reward)
        except ConfigError as error:
            raise ValueError(
                f"update.advantage = '{self.update.advantage}' needs measured credit, and {error}"
            ) from error

    @model_validator(mode="after")
    def _schedule_fits(self) -> "StarPOConfig":
        iterations = [change.iteration for change in self.schedule]
        if iterations != sorted(set(iterations)):
            raise ValueError(f"schedule: changes at iterations {iterations}: expected ascending, each once")
        for change in self.schedule:
            self._check(f"schedule: from iteration {change.iteration} on", self.at, change.iteration)
        self._check_remedies()
        return self

    def _check_remedies(self) -> None:
        """Check that each remedy fits the settings in force when it is applied: any prefix of the schedule, alone or
        with the remedies before it."""
        remedies = [Change(iteration=1, set=remedy) for remedy in self.diagnostics.remedies]
        for at in range(len(self.schedule) + 1):
            when = f" (after the change at iteration {self.schedule[at - 1].iteration})" if at else ""
            for number, remedy in enumerate(remedies):
                for before, after in (([], ""), (remedies[:number], " (after those before it)")):
                    changes = [*self.schedule[:at], *before, remedy]
                    self._check(f"diagnostics.remedies.{number}{after}{when}", self._with, changes)

    @staticmethod
    def _check(place: str, make: Callable[..., "StarPOConfig"], *arguments: Any) -> None:
        try:
            make(*arguments)
        except ValidationError as error:
            raise ValueError(f"{place}: {explain(error, StarPOConfig, {})}") from error
