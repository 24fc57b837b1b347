"""`Update`: one update from scores to metrics, independent of what holds the models and of the number of ranks.

    score (old, reference, values) -> credit -> training steps -> score again -> samples, metrics

Every learner runs this on its own models and ranks. Policies are always in evaluation mode: with dropout, the ratio of
an unchanged policy to itself would not be 1.
Legend: N response tokens of the update.
"""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.batches import MicroBatch, micro_batches
from starpo.ragen.learning.learners.credit import Credit, assign_credit, group_index, normalised_returns
from starpo.ragen.learning.learners.critic import evaluate
from starpo.ragen.learning.learners.data_parallel import DataParallelGroup
from starpo.ragen.learning.learners.gradient_spread import GradientSpread, spread
from starpo.ragen.learning.learners.learner import UpdateContext, UpdateResult
from starpo.ragen.learning.learners.ledger import Ledger
from starpo.ragen.learning.learners.measured_objectives import MeasuredObjectives, measure
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.optimisers import learning_rate_factor
from starpo.ragen.learning.learners.prm import fit
from starpo.ragen.learning.learners.scored_share import KNOWN_WITHIN, ScoredSample, scored_trajectories
from starpo.ragen.learning.learners.scoring import Scorer, Scores, score
from starpo.ragen.learning.learners.tokens import ResponseTokens
from starpo.ragen.learning.learners.trained_model import TrainedModel
from starpo.ragen.learning.learners.training import Targets, Term, Training, loss_terms, step_scale
from starpo.ragen.learning.learners.trajectories import Trajectory
from starpo.ragen.learning.learners.validity import validity
from starpo.ragen.learning.objectives.kl import KL_ESTIMATORS

OpenReference = Callable[[], AbstractContextManager[Scorer]]
"""Opens a context that yields the reference policy; this may be the policy itself with its adapter disabled."""


@dataclass(frozen=True)
class Update:
    """One update of models on trajectories.

    Attributes:
        config: Settings of the update.
        context: Position of the update in the run.
        models: 'policy' and, if the estimator needs one, 'critic' or 'prm'; changed in place.
        open_reference: Opens the reference policy; None if no KL divergence is needed.
        trajectories: Trajectories to train on.
        tokens: Their response tokens; at least one.
        row_tokens: Maximum tokens of a row in which segments share a prefix (see `micro_batches`).
        runner: Runs the micro-batches.
        dp_group: Data-parallel group that computes the update.
        num_restarted: Number of optimisers that were re-initialised when the models were loaded.
    """

    config: UpdateConfig
    context: UpdateContext
    models: Mapping[str, TrainedModel]
    open_reference: OpenReference | None
    trajectories: Sequence[Trajectory]
    tokens: ResponseTokens
    row_tokens: int
    runner: MicroBatchRunner
    dp_group: DataParallelGroup
    num_restarted: int = 0

    def run(self) -> UpdateResult:
        """Run the update.

        Raises:
            LearnerError: If a loss, a gradient or a log-probability is not finite; the models may be partly updated.
        """
        config, tokens, clock = self.config, self.tokens, _Clock()
        ledger = Ledger(tokens, self.runner.device)
        batches = self._batches(np.arange(len(tokens.segments)))
        sample = self._sample(batches)
        prepared = self._prepare(batches, sample)
        before, ref_N, credit = prepared.measured, prepared.ref_logprobs_N, prepared.credit
        clock.lap("score_s")

        num_steps = self._training(prepared, ledger).run()
        ledger.gather(self.dp_group)
        clock.lap("train_s")

        after_N = before.logprobs_N
        if num_steps:
            after_N = sample.only(self._score(self.models["policy"], sample.batches)).logprobs_N
        gap_N = (before.logprobs_N - tokens.behaviour_logprobs_N).abs()
        drift_N = tokens.behaviour_logprobs_N - after_N
        kl_N = None if ref_N is None else KL_ESTIMATORS[config.kl_estimator](after_N, ref_N)
        samples = ledger.samples(self.trajectories, credit.advantages_N, before.entropy_N, gap_N, drift_N, kl_N)
        metrics = {
            "update/num_trajectories": len(self.trajectories),
            "update/num_without_tokens": int((tokens.lengths_B == 0).sum()),
            "update/num_tokens": len(tokens),
            "update/num_steps": num_steps,
            "update/num_restarted_optimisers": self.num_restarted,
            "update/entropy": _mean(before.entropy_N),
            "update/advantage_mean": _mean(credit.advantages_N),
            "update/advantage_std": float(credit.advantages_N.double().std(correction=0)),
            "update/old_behaviour_gap_mean": _mean(gap_N),
            "update/old_behaviour_gap_max": float(gap_N[~gap_N.isnan()].max()),
            "update/kl_behaviour": _mean(drift_N),
            **({} if sample.is_all else {"update/old_is_from_rollout": float(prepared.old is not before)}),
            **prepared.prm_metrics,
            **prepared.validity,
            **self._validity("after", after_N, credit),
            **({} if kl_N is None else {"update/kl_reference": _mean(kl_N)}),
            **credit.explained_variance(prepared.values_N),
            **self._learning_rates(prepared.effective_sample_size),
            **ledger.step_metrics(),
            **ledger.token_metrics(),
        }
        clock.lap("review_s")
        num_trained = config.num_epochs * sum(len(segment.token_ids) for segment in tokens.segments)
        timings = clock.laps | {"trained_tokens_per_s": num_trained / clock.laps["train_s"]}
        return UpdateResult(samples, {name: float(value) for name, value in metrics.items()}, timings)

    def gradient(self) -> Tensor:
        """Compute the policy's gradient before any step (see `Learner.gradient`); the models do not change.

        Raises:
            LearnerError: If a loss or a log-probability is not finite.
        """
        prepared = self._aside()._prepare(self._batches(np.arange(len(self.tokens.segments))))
        return self._training(prepared, Ledger(self.tokens, self.runner.device)).gradient()

    def gradient_spreads(self, buckets: Sequence[Sequence[str]]) -> list[dict[str, GradientSpread]]:
        """Measure the spread of the groups' gradients (see `Learner.gradient_spreads`); the models do not change.

        Raises:
            LearnerError: If a loss or a log-probability is not finite.
        """
        prepared = self._aside()._prepare(self._batches(np.arange(len(self.tokens.segments))))
        training = self._training(prepared, Ledger(self.tokens, self.runner.device))
        members = self._members()

        def gradients(bucket: Sequence[str], term: Term) -> Iterator[Tensor]:
            for group in bucket:
                if group in members:
                    yield len(members) * training.gradient(members[group], term)

        return [{term: spread(gradients(bucket, term)) for term in loss_terms(self.config)} for bucket in buckets]

    def measured(self, configs: Sequence[UpdateConfig]) -> MeasuredObjectives:
        """Measure the gradients of other objectives on the same trajectories (see `measured_objectives`).

        The old policy, the reference and the critic score the tokens once for all objectives. A process reward model
        takes its step once per `prm.beta`. The models do not change.

        Args:
            configs: The objectives, at least one; the reference and the critic that they need must be loaded.

        Raises:
            LearnerError: If a loss or a log-probability is not finite.
        """
        with_collision = any("probabilities" in config.needs for config in configs)
        batches = self._batches(np.arange(len(self.tokens.segments)))
        scored = self._aside()._scored(batches, with_collision=with_collision)
        prm_N = {self.config.prm.beta: scored.prm_logprobs_N}
        trainings = []
        for config in configs:
            one, beta = replace(self, config=config), config.prm.beta
            if config.needs_prm and beta not in prm_N:
                prm_N[beta], _ = one._aside()._fitted_prm(scored.old, batches)
            of_one = replace(scored, prm_logprobs_N=prm_N.get(beta))
            trainings.append(one._training(one._credited(of_one), Ledger(self.tokens, self.runner.device)))
        return measure(trainings, self._members().values())

    def _members(self) -> dict[str, np.ndarray]:
        """Return group -> indices of its trajectories that have response tokens."""
        members: dict[str, list[int]] = {}
        for index in np.flatnonzero(self.tokens.lengths_B.numpy()).tolist():
            members.setdefault(self.trajectories[index].group_id, []).append(index)
        return {group: np.array(indices) for group, indices in members.items()}

    def logprobs(self) -> Tensor:
        """Compute the log-probs of the response tokens under the policy (see `Learner.logprobs`); it does not change.

        Raises:
            LearnerError: If one is not finite.
        """
        return self._score(self.models["policy"], self._batches(np.arange(len(self.tokens.segments)))).logprobs_N

    def _training(self, prepared: "_Prepared", ledger: Ledger) -> Training:
        return Training(
            config=self.config,
            context=self.context,
            models=self.models,
            trajectories=self.trajectories,
            tokens=self.tokens,
            targets=prepared.targets,
            ledger=ledger,
            batches_of=self._batches,
            runner=self.runner,
            dp_group=self.dp_group,
            score=lambda batches: self._score(self.models["policy"], batches),
            effective_sample_size=prepared.effective_sample_size,
        )

    def _batches(self, segments: np.ndarray) -> list[MicroBatch]:
        """Pack this process's share of some segments into micro-batches, on its device."""
        batches = micro_batches(
            self.tokens,
            segments,
            self.config.micro_batch_tokens,
            row_tokens=self.row_tokens,
            rank=self.dp_group.rank,
            num_ranks=self.dp_group.size,
        )
        return [batch.to(self.runner.device) for batch in batches]

    def _prepare(self, batches: Sequence[MicroBatch], sample: ScoredSample | None = None) -> "_Prepared":
        """Score the tokens and assign credit."""
        return self._credited(self._scored(batches, sample, with_collision="probabilities" in self.config.needs))

    def _aside(self) -> "Update":
        """Return a copy for measurements, in which the step of a process reward model changes a copy of that model."""
        models = self.models
        return replace(self, models={**models, "prm": copy.deepcopy(models["prm"])}) if "prm" in models else self

    def _sample(self, batches: Sequence[MicroBatch]) -> ScoredSample:
        """Choose the tokens that the policy scores (`update.scored_share`); `batches` hold all tokens."""
        tokens, share = self.tokens, self.config.scored_share
        if share == 1:
            return ScoredSample.everything(len(tokens), batches)
        is_in_B = scored_trajectories(group_index(self.trajectories), tokens.lengths_B, share, self.context.seed)
        segments = np.flatnonzero(is_in_B[tokens.segment_trajectory])
        return ScoredSample(torch.from_numpy(is_in_B)[tokens.trajectory_N], self._batches(segments))

    def _score_before(
        self, batches: Sequence[MicroBatch], sample: ScoredSample, *, with_collision: bool
    ) -> tuple[Scores, Scores]:
        """Score the policy before its first step.

        Returns:
            Scores as measured, NaN for tokens that are not scored; and the same with a log-prob for every token.
        """
        policy, behaviour_N = self.models["policy"], self.tokens.behaviour_logprobs_N
        measured = sample.only(self._score(policy, sample.batches, with_collision=with_collision))
        if sample.is_all:
            return measured, measured
        gap = sample.largest_gap(measured.logprobs_N, behaviour_N)
        if gap <= KNOWN_WITHIN:
            return measured, replace(measured, logprobs_N=behaviour_N)
        scores = self._score(policy, batches)
        return scores, scores

    def _scored(
        self, batches: Sequence[MicroBatch], sample: ScoredSample | None = None, *, with_collision: bool
    ) -> "_Scored":
        """Score the tokens under all models; a process reward model takes its step first.

        Args:
            batches: All tokens.
            sample: Tokens that the policy scores; None for all.
            with_collision: Also compute `collision_N`.
        """
        tokens = self.tokens
        sample = sample or ScoredSample.everything(len(tokens), batches)
        measured, old = self._score_before(batches, sample, with_collision=with_collision)
        ref_N = None
        if self.open_reference is not None:
            with self.open_reference() as reference:
                ref_N = self._score(reference, batches).logprobs_N
        values_N = None
        if "critic" in self.models:
            values_N = evaluate(self.models["critic"], batches, len(tokens), self.runner, self.dp_group)
        prm_N, metrics = self._fitted_prm(old, batches) if "prm" in self.models else (None, {})
        return _Scored(measured, old, ref_N, values_N, prm_N, metrics)

    def _fitted_prm(self, old: Scores, batches: Sequence[MicroBatch]) -> tuple[Tensor, dict[str, float]]:
        """Take the step of the process reward model; return its log-probabilities after it, and metrics."""
        model, context = self.models["prm"], self.context
        before_N = self._score(model, batches).logprobs_N
        metrics = fit(
            model,
            self.config.prm.beta * (before_N.double() - old.logprobs_N.double()),
            normalised_returns(self.trajectories),
            group_index(self.trajectories),
            self.tokens,
            batches,
            beta=self.config.prm.beta,
            temperature=context.temperature,
            factor=learning_rate_factor(model.config, context.iteration, context.num_iterations),
            runner=self.runner,
        )
        has_moved = metrics["update/prm_pairs"] > 0
        return self._score(model, batches).logprobs_N if has_moved else before_N, metrics

    def _credited(self, scored: "_Scored") -> "_Prepared":
        tokens, device = self.tokens, self.runner.device
        old, ref_N, values_N = scored.old, scored.ref_logprobs_N, scored.values_N
        implicit_N = scored.implicit_rewards(self.config.prm.beta)
        credit = assign_credit(
            self.trajectories, tokens, self.config, old, ref_N, values_N, self.context.kept_share, implicit_N
        )
        targets = Targets(
            behaviour_logprobs_N=tokens.behaviour_logprobs_N.to(device),
            old_logprobs_N=old.logprobs_N.to(device),
            advantages_N=credit.advantages_N.to(device),
            ref_logprobs_N=None if ref_N is None else ref_N.to(device),
            values_N=None if values_N is None else values_N.to(device),
            value_targets_N=None if credit.value_targets_N is None else credit.value_targets_N.to(device),
            value_mask_N=None if credit.value_mask_N is None else credit.value_mask_N.to(device),
        )
        validity = self._validity("before", scored.measured.logprobs_N, credit)
        own = (scored.measured, old, ref_N, values_N, scored.prm_logprobs_N, scored.prm_metrics)
        return _Prepared(*own, credit, targets, validity)

    def _score(self, scorer: Scorer, batches: Sequence[MicroBatch], *, with_collision: bool = False) -> Scores:
        tokens = self.tokens
        scores = score(
            scorer, batches, len(tokens), self.context.temperature, self.runner, self.dp_group,
            with_collision=with_collision,
        )  # fmt: skip
        is_bad_N = ~torch.isfinite(scores.logprobs_N)
        if is_bad_N.any():
            culprit = self.trajectories[int(tokens.trajectory_N[is_bad_N][0])]
            raise LearnerError(
                f"a token of trajectory '{culprit.trajectory_id}' has a log-probability that is not finite: the "
                "weights of the policy or of the reference are damaged, or overflow in this dtype. Before a run's "
                "first step no learning rate is at fault: compare with update.dtype = 'float32'. Later, go back to an "
                "earlier checkpoint, and lower the learning rates of update.optimiser"
            )
        return scores

    def _validity(self, when: str, logprobs_N: Tensor, credit: Credit) -> dict[str, float]:
        """Compare the policy with the behaviour policy: `update/validity_before/...`, `update/validity_after/...`."""
        tokens, config = self.tokens, self.config
        has_loss_N = tokens.mask(config.loss_on)
        values = validity(tokens, logprobs_N, credit.advantages_N, config.clip_low, config.clip_high, has_loss_N)
        return {f"update/validity_{when}/{name}": value for name, value in values.items()}

    def _learning_rates(self, effective_sample_size: float) -> dict[str, float]:
        config = self.config.optimiser
        factor = learning_rate_factor(config, self.context.iteration, self.context.num_iterations)
        factor *= step_scale(self.config, effective_sample_size)
        rates = {"update/learning_rate": config.learning_rate * factor}
        if config.type == "muon":
            rates["update/matrix_learning_rate"] = config.matrix_learning_rate * factor
        return rates


@dataclass(frozen=True)
class _Scored:
    """Scores of the tokens before the first step, independent of the objective; on the CPU.

    `measured` are those of the policy as computed, NaN for tokens that it did not score; `old` are those that losses
    take.
    """

    measured: Scores
    old: Scores
    ref_logprobs_N: Tensor | None
    values_N: Tensor | None
    prm_logprobs_N: Tensor | None
    prm_metrics: dict[str, float]

    def implicit_rewards(self, beta: float) -> Tensor | None:
        """Return each token's reward from the process reward model, float64 [N]; None without such a model."""
        if self.prm_logprobs_N is None:
            return None
        return beta * (self.prm_logprobs_N.double() - self.old.logprobs_N.double())


@dataclass(frozen=True)
class _Prepared(_Scored):
    """State of an update before its first step; tensors on the CPU except for `targets`."""

    credit: Credit
    targets: Targets
    validity: dict[str, float]

    @property
    def effective_sample_size(self) -> float:
        """Effective sample size of the trajectories, as a share."""
        return self.validity["update/validity_before/effective_sample_size_trajectories"]


class _Clock:
    """Measures the seconds between laps."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now


def _mean(values_N: Tensor) -> float:
    """Mean over the tokens that were scored."""
    return float(values_N.double().nanmean())
