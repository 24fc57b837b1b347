"""`Training`: the optimiser steps of one update, from the inputs of its losses to updated weights.

    epochs -> mini-batches (a step each) -> micro-batches: forward, weighted terms, backward -> clip, step

Legend: N response tokens of the update, M those of a micro-batch, B trajectories.
"""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import SURROGATES
from starpo.ragen.learning.learners.batches import MicroBatch, num_steps, split_minibatches
from starpo.ragen.learning.learners.data_parallel import DataParallelGroup
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.learners.ledger import Ledger
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.optimisers import learning_rate_factor
from starpo.ragen.learning.learners.scoring import Quantity, Scores
from starpo.ragen.learning.learners.tokens import ResponseTokens
from starpo.ragen.learning.learners.trained_model import TrainedModel
from starpo.ragen.learning.learners.trajectories import Trajectory
from starpo.ragen.learning.objectives.kl import KL_ESTIMATORS
from starpo.ragen.learning.objectives.losses import token_weights, truncated_importance, value_loss
from starpo.ragen.learning.objectives.ratios import RATIOS, log_ratio
from starpo.ragen.learning.objectives.surrogates import SurrogateInputs, covariances


@dataclass(frozen=True)
class Targets:
    """Per-token inputs of the losses of an update, on the learner's device. float32 [N] each.

    Attributes:
        behaviour_logprobs_N: Log-probs under the behaviour policy.
        old_logprobs_N: Log-probs under the policy before the first step.
        advantages_N: Advantages as they enter the loss.
        ref_logprobs_N: Log-probs under the reference policy; None without a reference.
        values_N: The critic's values before the first step; None without a critic.
        value_targets_N: Targets that the critic is fitted to; None with `values_N`.
        value_mask_N: Tokens at which the critic is fitted. bool; None with `values_N`.
    """

    behaviour_logprobs_N: Tensor
    old_logprobs_N: Tensor
    advantages_N: Tensor
    ref_logprobs_N: Tensor | None
    values_N: Tensor | None
    value_targets_N: Tensor | None
    value_mask_N: Tensor | None


Term = Literal["task", "kl", "entropy"]
"""A term of the policy's loss: the surrogate, the KL to the reference, the entropy bonus."""


def loss_terms(config: UpdateConfig) -> list[Term]:
    """Return the terms of the policy's loss under these settings; a KL penalty in the reward belongs to 'task'."""
    has: dict[Term, bool] = {
        "task": True,
        "kl": config.kl_coefficient > 0 and config.kl_placement == "loss",
        "entropy": config.entropy_coefficient > 0,
    }
    return [term for term, is_there in has.items() if is_there]


def step_scale(config: UpdateConfig, effective_sample_size: float) -> float:
    """Scale of an optimiser step: `min(1, sqrt(ESS / reference))` (VCPO); 1 when disabled."""
    reference = config.effective_sample_reference
    return 1.0 if reference is None else min(1.0, effective_sample_size / reference) ** 0.5


def scored_for(terms: Collection[Term]) -> tuple[Quantity, ...]:
    """Return the quantities that these terms need of each token."""
    return ("logprob", "entropy") if "entropy" in terms else ("logprob",)


TermsOf = Callable[..., tuple[dict[Term, Tensor], Tensor]]
"""A micro-batch and the policy's quantities of its tokens (`scored_for`) -> terms of each token's loss, and the tokens'
weights in the loss. [M] each"""
BatchesOf = Callable[[np.ndarray], list[MicroBatch]]
"""Indices of segments of the update -> this process's micro-batches of them, on its device."""


@dataclass(frozen=True)
class Training:
    """The optimiser steps of one update.

    Attributes:
        config: Settings of the update.
        context: Position of the update in the run.
        models: 'policy' and, with a critic, 'critic'; changed in place.
        trajectories: Trajectories of the update.
        tokens: Their response tokens.
        targets: Inputs of the losses.
        ledger: Collects statistics of tokens and steps.
        batches_of: Packs segments into micro-batches.
        runner: Runs the micro-batches.
        dp_group: Data-parallel group that takes the steps together.
        score: Scores micro-batches under the current policy.
        effective_sample_size: Effective sample size of the trajectories before the first step, as a share.
    """

    config: UpdateConfig
    context: UpdateContext
    models: Mapping[str, TrainedModel]
    trajectories: Sequence[Trajectory]
    tokens: ResponseTokens
    targets: Targets
    ledger: Ledger
    batches_of: BatchesOf
    runner: MicroBatchRunner
    dp_group: DataParallelGroup
    score: Callable[[Sequence[MicroBatch]], Scores]
    effective_sample_size: float = 1.0

    def run(self) -> int:
        """Take all steps.

        Returns:
            Number of steps of the policy; 0 during critic warm-up.

        Raises:
            LearnerError: If a loss or a gradient is not finite. Earlier steps have been applied.
        """
        tokens, reverse = self.tokens, self.config.turn_order == "reverse"
        trainable = torch.nonzero(tokens.lengths_B)[:, 0].numpy()
        critic_first = self.config.needs_critic and self.context.iteration < self.config.critic.warmup_updates
        num_minibatches, num_taken = num_steps(len(trainable), self.config), 0
        for epoch in range(self.config.num_epochs):
            for minibatch in split_minibatches(len(trainable), num_minibatches, self.context.seed, epoch):
                members = trainable[minibatch]
                segments = np.flatnonzero(np.isin(tokens.segment_trajectory, members))
                batches = self.batches_of(segments)
                is_in_N = torch.from_numpy(np.isin(tokens.trajectory_N.numpy(), members))
                if not critic_first:
                    num_taken += self._step_turns(batches, is_in_N) if reverse else self._step_policy(batches, is_in_N)
                if "critic" in self.models:
                    self._step_critic(batches, is_in_N)
        return num_taken

    def gradient(self, members: np.ndarray | None = None, term: Term | None = None) -> Tensor:
        """Compute the gradient of the policy's loss over all trajectories as one mini-batch, without a step.

        Args:
            members: Indices of trajectories; only their contribution is returned. None for all.
            term: Term of the loss; only its contribution is returned. None for all.

        Returns:
            Gradient of all trainable parameters of the policy, concatenated in their order, on the CPU; 0 for
            parameters that the loss does not depend on. float32 [parameters]

        Raises:
            LearnerError: If a loss is not finite.
        """
        tokens = self.tokens
        members = np.arange(len(tokens.lengths_B)) if members is None else members
        segments = np.flatnonzero(np.isin(tokens.segment_trajectory, members))
        everything_N = torch.ones(len(tokens), dtype=torch.bool)
        self._add_policy_gradients(self.batches_of(segments), everything_N, self.targets.advantages_N, term)
        return self.models["policy"].pop_gradient()

    def _step_policy(self, batches: list[MicroBatch], is_in_N: Tensor, advantages_N: Tensor | None = None) -> int:
        """Take one step on the tokens of a mini-batch; return 1, or 0 (no step) if none of them has a loss."""
        if not bool((is_in_N & self.tokens.mask(self.config.loss_on)).any()):
            return 0
        advantages_N = self.targets.advantages_N if advantages_N is None else advantages_N
        self.ledger.note_step("policy_loss", self._add_policy_gradients(batches, is_in_N, advantages_N))
        self.ledger.note_step("gradient_norm", self._step("policy"))
        return 1

    def _step_turns(self, batches: list[MicroBatch], is_in_N: Tensor) -> int:
        """Take one step per turn of a mini-batch, last turn first (SeeUPO, 2602.06554, Alg. 1); return their number.

        Advantages of a turn are multiplied by the ratios, new to old, of the later turns, which are already updated:
        the geometric mean over each turn's tokens with a loss, clipped as in the surrogate. The gradient of a turn thus
        accounts for the updated policy of the later turns.
        """
        tokens, config, num_taken = self.tokens, self.config, 0
        has_loss_N = tokens.mask(config.loss_on)
        factor_B = torch.ones(len(tokens.lengths_B))
        for turn in range(int(tokens.turn_N[is_in_N].max()), -1, -1):
            is_now_N = is_in_N & (tokens.turn_N == turn)
            factor_N = factor_B[tokens.trajectory_N].to(self.targets.advantages_N)
            num_taken += self._step_policy(batches, is_now_N, self.targets.advantages_N * factor_N)
            if turn and is_now_N.any():
                moved_N = self.score(batches).logprobs_N - self.targets.old_logprobs_N.cpu()
                is_meant_N = is_now_N & has_loss_N
                count_B = tokens.sums(is_meant_N).clamp(min=1)
                ratio_B = (tokens.sums(moved_N * is_meant_N) / count_B).exp()
                factor_B = factor_B * ratio_B.clamp(1 - config.clip_low, 1 + config.clip_high).float()
        return num_taken

    def _add_policy_gradients(
        self, batches: list[MicroBatch], is_in_N: Tensor, advantages_N: Tensor, only: Term | None = None
    ) -> float:
        """Add the gradient of the loss over the given tokens of a mini-batch; return the surrogate part of the loss."""
        terms_of, asked = self.policy_terms(is_in_N, advantages_N), scored_for(loss_terms(self.config))

        def terms(batch: MicroBatch) -> tuple[Tensor, Tensor]:
            terms, weights_M = terms_of(batch, *self.models["policy"](batch, self.context.temperature, asked))
            loss_M = reduce(operator.add, terms.values()) if only is None else terms[only]
            return loss_M * weights_M, terms["task"] * weights_M

        return self._accumulate("policy", terms, batches)

    def policy_terms(self, is_in_N: Tensor, advantages_N: Tensor) -> TermsOf:
        """Return a function that computes the loss terms and weights of a micro-batch's tokens in a mini-batch.

        Args:
            is_in_N: Tokens of the mini-batch. bool
            advantages_N: Advantages as they enter the loss, on the learner's device.
        """
        tokens, config = self.tokens, self.config
        has_loss_N = is_in_N & tokens.mask(config.loss_on)
        lengths_B = torch.bincount(tokens.trajectory_N[has_loss_N], minlength=len(tokens.lengths_B))
        weights_B = token_weights(lengths_B, config.aggregation, self.context.max_response_tokens)
        weights_N = (weights_B[tokens.trajectory_N] * tokens.weight_N * has_loss_N).to(self.targets.old_logprobs_N)
        covariances_2N = self._covariances(has_loss_N, advantages_N)

        def terms_of(batch: MicroBatch, *scored_M: Tensor) -> tuple[dict[Term, Tensor], Tensor]:
            weights_M = weights_N[batch.token_M]
            covariances_2M = None if covariances_2N is None else covariances_2N[:, batch.token_M]
            terms = self._policy_terms(batch, scored_M, weights_M, advantages_N[batch.token_M], covariances_2M)
            return terms, weights_M

        return terms_of

    def _covariances(self, has_loss_N: Tensor, advantages_N: Tensor) -> Tensor | None:
        """Covariance and its rank for each token of a mini-batch, [2, N]; None if the surrogate does not need them."""
        if "covariances" not in self.config.needs:
            return None
        has_loss_N = has_loss_N.to(advantages_N.device)
        found_2N = advantages_N.new_zeros(2, len(advantages_N))
        found = covariances(self.targets.old_logprobs_N[has_loss_N], advantages_N[has_loss_N])
        found_2N[:, has_loss_N] = torch.stack(found)
        return found_2N

    def _policy_terms(
        self,
        batch: MicroBatch,
        scored_M: tuple[Tensor, ...],
        weights_M: Tensor,
        advantages_M: Tensor,
        covariances_2M: Tensor | None,
    ) -> dict[Term, Tensor]:
        """Compute the unweighted terms of each token's loss. [M] each"""
        config, targets, token_M = self.config, self.targets, batch.token_M
        logprobs_M, *entropies = scored_M
        old_M, behaviour_M = targets.old_logprobs_N[token_M], targets.behaviour_logprobs_N[token_M]
        log_ratio_M = log_ratio(logprobs_M, old_M if config.ratio_to == "update_start" else behaviour_M)
        inputs = SurrogateInputs(
            logprobs_M=logprobs_M,
            log_ratio_M=log_ratio_M,
            ratio_M=RATIOS[config.ratio](log_ratio_M, self._units[token_M]),
            advantages_M=advantages_M,
            sequence_M=self._contexts[token_M],
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            covariance_M=None if covariances_2M is None else covariances_2M[0],
            covariance_rank_M=None if covariances_2M is None else covariances_2M[1],
            options=config.surrogate_options,
        )
        surrogate = load(SURROGATES, config.surrogate)(inputs)
        surrogate_M = surrogate.loss_M
        if config.importance_cap is not None:
            surrogate_M = surrogate_M * truncated_importance(old_M, behaviour_M, config.importance_cap)
        noted = token_M, inputs.ratio_M, surrogate.is_low_M, surrogate.is_high_M, (surrogate_M * weights_M).abs()
        has_loss_M = weights_M > 0
        self.ledger.note_tokens(*(values_M[has_loss_M] for values_M in noted))
        terms: dict[Term, Tensor] = {"task": surrogate_M}
        if "kl" in loss_terms(config):
            assert targets.ref_logprobs_N is not None
            divergence_M = KL_ESTIMATORS[config.kl_estimator](logprobs_M, targets.ref_logprobs_N[token_M])
            terms["kl"] = config.kl_coefficient * divergence_M
        if "entropy" in loss_terms(config):
            terms["entropy"] = -config.entropy_coefficient * entropies[0]
        return terms

    @cached_property
    def _contexts(self) -> Tensor:
        """Index of the sequence of each token: its context. int64, on the learner's device

        Tokens without a loss (`loss_on`) are a sequence of their own: means over a sequence are over tokens with one.
        """
        contexts_N = 2 * self.tokens.segment_N + self.tokens.mask(self.config.loss_on)
        return contexts_N.to(self.targets.old_logprobs_N.device)

    @cached_property
    def _units(self) -> Tensor:
        """Index of the unit that shares a ratio: each token's sequence or its turn. int64, on the learner's device"""
        if self.config.ratio in ("token", "sequence"):
            return self._contexts
        turn_N = self.tokens.turn_N.to(self._contexts.device)
        return self._contexts * (int(turn_N.max()) + 1) + turn_N

    def _step_critic(self, batches: list[MicroBatch], is_in_N: Tensor) -> None:
        critic, old_N, targets_N = self.models["critic"], self.targets.values_N, self.targets.value_targets_N
        assert old_N is not None
        assert targets_N is not None
        assert self.targets.value_mask_N is not None
        is_fitted_N = self.targets.value_mask_N & is_in_N.to(self.targets.value_mask_N.device)
        if not is_fitted_N.any():
            return
        weights_N = is_fitted_N / is_fitted_N.sum()

        def terms(batch: MicroBatch) -> tuple[Tensor, Tensor]:
            old_M, targets_M = old_N[batch.token_M], targets_N[batch.token_M]
            terms_M = weights_N[batch.token_M] * value_loss(
                critic(batch), old_M, targets_M, self.config.critic.clip_value
            )
            return terms_M, terms_M

        self.ledger.note_step("value_loss", self._accumulate("critic", terms, batches))
        self.ledger.note_step("critic_gradient_norm", self._step("critic"))

    def _accumulate(
        self, model: str, terms: Callable[[MicroBatch], tuple[Tensor, Tensor]], batches: list[MicroBatch]
    ) -> float:
        """Accumulate the gradients of all micro-batches in the model, in order.

        Args:
            model: 'policy' or 'critic'.
            terms: Micro-batch -> weighted terms to differentiate, and terms to report. [M], [M]
            batches: This process's micro-batches of the mini-batch.

        Returns:
            Sum of the reported terms over the data-parallel group.
        """

        def loss(batch: MicroBatch) -> tuple[Tensor, float]:
            terms_M, reported_M = terms(batch)
            self.check_finite(terms_M.detach(), batch, model)
            return terms_M.sum(), float(reported_M.detach().sum())

        total = self.models[model].accumulate(loss, batches, self.runner)
        return float(self.dp_group.sum(torch.tensor(total, dtype=torch.float64)))

    def check_finite(self, terms_M: Tensor, batch: MicroBatch, model: str) -> None:
        """Check that the terms of a micro-batch's tokens are finite.

        Raises:
            LearnerError: If one is not; the message names the trajectory.
        """
        is_bad_M = ~torch.isfinite(terms_M)
        if is_bad_M.any():
            token = int(batch.token_M[is_bad_M][0])
            trajectory_id = self.trajectories[int(self.tokens.trajectory_N[token])].trajectory_id
            raise LearnerError(
                f"the {model}'s loss on a token of trajectory '{trajectory_id}' is {terms_M[is_bad_M][0].item()}, "
                "not a finite number. The stored checkpoint is untouched. Before a run's first step no learning rate "
                "is at fault: compare with update.dtype = 'float32'. Later, lower it or max_gradient_norm, and update "
                "again"
            )

    def _step(self, model: str) -> float:
        """Take a step of a model's optimiser; return the gradient norm before clipping."""
        factor = learning_rate_factor(self.models[model].config, self.context.iteration, self.context.num_iterations)
        factor *= step_scale(self.config, self.effective_sample_size)
        norm = self.models[model].step(factor)
        if not np.isfinite(norm):
            raise LearnerError(
                f"the gradient of the {model} has norm {norm}, although every loss is finite. The stored checkpoint is "
                "untouched; lower update.optimiser's learning rates and update again"
            )
        return norm
