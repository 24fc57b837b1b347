"""`PolicyLoss`: the loss of the policy over some response tokens of an update, a micro-batch at a time.

    log-probs, entropies -> ratio -> surrogate, scaled (+ KL to the reference) (- entropy bonus) -> weighted sum
                                                       (+ KL to the teacher)    (+ mean cross-entropy on observations)

Legend: N response tokens of the update, M those of a micro-batch, B trajectories.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from starpo.ragen.config.plugin_calls import plugin_call
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import SURROGATES
from starpo.ragen.learning.learners.data.batches import MicroBatch
from starpo.ragen.learning.learners.ledger import Ledger
from starpo.ragen.learning.learners.loss_inputs import LossInputs
from starpo.ragen.learning.learners.models.scoring import Quantity
from starpo.ragen.learning.learners.update_inputs import UpdateInputs
from starpo.ragen.learning.objectives.kl import KL_ESTIMATORS
from starpo.ragen.learning.objectives.losses import token_weights
from starpo.ragen.learning.objectives.ratios import RATIOS, log_ratio
from starpo.ragen.learning.objectives.surrogates import SurrogateInputs, covariances

_ROUNDING = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.0125}
"""Nats by which two computations of one log-prob may differ, in other micro-batches or by the engine that sampled.
Measured: at most 2.4e-5 in float32; in bfloat16 0.04 on a tiny policy, and 0.075 at 95% of SmolLM2-135M's tokens."""
Term = Literal["task", "kl", "entropy", "observation", "teacher"]
"""A term of the policy's loss: the surrogate, the KL to the reference, the entropy bonus, the cross-entropy on
observations, the KL to the teacher over its most probable tokens."""


def loss_terms(config: UpdateConfig) -> list[Term]:
    """Return the terms of the policy's loss under these settings; a KL penalty in the reward belongs to 'task'."""
    has: dict[Term, bool] = {
        "task": True,
        "kl": config.kl_coefficient > 0 and config.kl_placement == "loss",
        "entropy": config.has_entropy_bonus,
        "observation": config.observation_coefficient > 0,
        "teacher": config.distills_top_tokens,
    }
    return [term for term, is_there in has.items() if is_there]


@dataclass(frozen=True)
class PolicyLoss:
    """Loss over the tokens of a mini-batch.

    Attributes:
        inputs: The update.
        given: Per-token inputs.
        weights_N: Weight of each token in the loss (`losses.token_weights`); 0 if it has none.
        covariances_2N: Covariance of each token and its rank; None if the surrogate does not need them.
        scale_N: Factor of each token's surrogate: its importance weight, or 0 if it is not among the most uncertain.
            None for 1.
        terms_N: Filled in by the micro-batches: weighted loss of each token.
        ledger: Collects statistics of the tokens.
        only: The one term to compute; None for their sum.
        num_observations: Observation tokens of the mini-batch.
        observation_E: Filled in by the micro-batches: each observation token's part of the mean cross-entropy, at its
            index in `ObservedTokens`. None without this term.
    """

    inputs: UpdateInputs
    given: LossInputs
    weights_N: Tensor
    covariances_2N: Tensor | None
    scale_N: Tensor | None
    terms_N: Tensor
    ledger: Ledger
    only: Term | None = None
    num_observations: int = 0
    observation_E: Tensor | None = None

    @classmethod
    def over(
        cls, inputs: UpdateInputs, given: LossInputs, is_in_N: Tensor, ledger: Ledger, only: Term | None = None
    ) -> "PolicyLoss":
        """Create the loss over the given tokens; denominators are theirs alone.

        Args:
            inputs: The update.
            given: Per-token inputs.
            is_in_N: Tokens of the mini-batch. bool, on the CPU
            ledger: Collects statistics of the tokens.
            only: The one term to compute.
        """
        tokens, config = inputs.tokens, inputs.config
        has_loss_N = is_in_N & tokens.mask(config.loss_on)
        lengths_B = torch.bincount(tokens.trajectory_N[has_loss_N], minlength=len(tokens.lengths_B))
        weights_B = token_weights(lengths_B, config.aggregation, inputs.context.max_response_tokens)
        weights_N = (weights_B[tokens.trajectory_N] * tokens.weight_N * has_loss_N).to(given.old_logprobs_N)
        covariances_2N = None
        if "covariances" in config.needs:
            has_loss_N = has_loss_N.to(weights_N.device)
            covariances_2N = weights_N.new_zeros(2, len(weights_N))
            covariance_pair = covariances(given.old_logprobs_N[has_loss_N], given.advantages_N[has_loss_N])
            covariances_2N[:, has_loss_N] = torch.stack(covariance_pair)
        scale_N = given.importance_N
        if given.entropy_N is not None:
            from starpo.ragen.learning.objectives.uncertain import most_uncertain

            has_loss_N = has_loss_N.to(weights_N.device)
            is_uncertain_N = torch.zeros_like(weights_N)
            is_uncertain_N[has_loss_N] = most_uncertain(given.entropy_N[has_loss_N], config.uncertain_share).float()
            scale_N = is_uncertain_N if scale_N is None else scale_N * is_uncertain_N
            ledger.note_step("uncertain_share", float(is_uncertain_N.sum() / has_loss_N.sum().clamp(min=1)))
        num_observations, observation_E = 0, None
        if inputs.observed is not None:
            num_observations = inputs.observed.num_observations(tokens.trajectory_N[is_in_N], len(tokens.lengths_B))
            observation_E = weights_N.new_zeros(len(inputs.observed.response_E))
        terms_N = torch.zeros_like(weights_N)
        return cls(
            inputs, given, weights_N, covariances_2N, scale_N, terms_N, ledger, only, num_observations, observation_E
        )

    def check(self) -> None:
        """Check the micro-batches computed so far.

        Raises:
            LearnerError: If the loss of a token is not finite.
        """
        self.inputs.check_finite(self.terms_N, "policy")

    def __call__(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        """Compute the loss of a micro-batch, and the surrogate's part of it; thread-safe, as no token is in two."""
        config, given, token_M = self.inputs.config, self.given, batch.token_M
        terms = loss_terms(config)
        quantities: tuple[Quantity, ...] = ("logprob", "entropy") if "entropy" in terms else ("logprob",)
        (logprobs_M, *entropy), from_teacher_M = self._score(batch, quantities)
        observation = logprobs_M.new_zeros(())
        if self.observation_E is not None:
            token_M, (logprobs_M, *entropy), observation = self._observe(batch, [logprobs_M, *entropy])
        old_M, behaviour_M, weights_M = (
            values_N[token_M] for values_N in (given.old_logprobs_N, given.behaviour_logprobs_N, self.weights_N)
        )
        log_ratio_M = log_ratio(logprobs_M, old_M if config.ratio_to == "update_start" else behaviour_M)
        ratio_M = RATIOS[config.ratio](log_ratio_M, given.unit_N[token_M])
        inputs = SurrogateInputs(
            logprobs_M=logprobs_M,
            log_ratio_M=log_ratio_M,
            ratio_M=ratio_M,
            advantages_M=given.advantages_N[token_M],
            sequence_M=given.sequence_N[token_M],
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            covariance_M=None if self.covariances_2N is None else self.covariances_2N[0, token_M],
            covariance_rank_M=None if self.covariances_2N is None else self.covariances_2N[1, token_M],
            options=config.surrogate_options,
            rounding=_ROUNDING[config.dtype],
        )
        with plugin_call("surrogate", SURROGATES, config.surrogate):
            surrogate = load(SURROGATES, config.surrogate)(inputs)
        surrogate_M = surrogate.loss_M
        if self.scale_N is not None:
            surrogate_M = surrogate_M * self.scale_N[token_M]
        is_low_M, is_high_M = surrogate.is_low_M, surrogate.is_high_M
        if config.negative_max_kl is not None:
            from starpo.ragen.learning.objectives.off_policy import is_left_behind

            is_left_M = is_left_behind(
                logprobs_M, behaviour_M, inputs.advantages_M, inputs.sequence_M, config.negative_max_kl
            )
            surrogate_M = torch.where(is_left_M, 0.0, surrogate_M)
            is_low_M, is_high_M = is_low_M | is_left_M, is_high_M & ~is_left_M
        loss_M = surrogate_M if self.only in (None, "task") else torch.zeros_like(surrogate_M)
        if "kl" in terms and self.only in (None, "kl"):
            assert given.ref_logprobs_N is not None
            ref_M = given.ref_logprobs_N[token_M]
            if config.should_weigh_kl:
                from starpo.ragen.learning.objectives.off_policy import reverse_kl

                divergence_M = reverse_kl(logprobs_M, ref_M, log_ratio_M)
            else:
                divergence_M = KL_ESTIMATORS[config.kl_estimator](logprobs_M, ref_M)
            loss_M = loss_M + config.kl_coefficient * divergence_M
        if "entropy" in terms and self.only in (None, "entropy"):
            loss_M = loss_M - given.entropy_coefficient * entropy[0]
        if from_teacher_M is not None and self.only in (None, "teacher"):
            loss_M = loss_M + config.distillation_coefficient * from_teacher_M
        weighted_M = loss_M * weights_M
        self.terms_N[token_M] = weighted_M.detach().to(self.terms_N.dtype)
        task_M = (surrogate_M * weights_M).detach()
        self.ledger.note_tokens(token_M, weights_M > 0, ratio_M, is_low_M, is_high_M, task_M.abs())
        if self.only in (None, "observation"):
            return weighted_M.sum() + config.observation_coefficient * observation, task_M.sum()
        return weighted_M.sum(), task_M.sum()

    def _score(self, batch: MicroBatch, quantities: Sequence[Quantity]) -> tuple[list[Tensor], Tensor | None]:
        """Return quantities of the tokens, and their divergence from the teacher if the loss has it."""
        temperature = self.inputs.context.temperature
        if self.given.top_tokens is None:
            return list(self.inputs.policy(batch, temperature, quantities)), None
        from starpo.ragen.learning.objectives.divergence import DIVERGENCES

        token_ids_MK, teacher_MK = (values_NK[batch.token_M] for values_NK in self.given.top_tokens)
        scores = self.inputs.policy(batch.with_targets(token_ids_MK), temperature, quantities)
        num_tokens = len(teacher_MK)
        policy_MK = scores[0][num_tokens:].reshape(teacher_MK.shape)
        divergence_M = DIVERGENCES[self.inputs.config.distillation](policy_MK, teacher_MK)
        return [values[:num_tokens] for values in scores], divergence_M

    def _observe(self, batch: MicroBatch, quantities_E: list[Tensor]) -> tuple[Tensor, list[Tensor], Tensor]:
        """Separate observations from responses.

        Args:
            batch: A micro-batch of `ObservedTokens`.
            quantities_E: Log-probs of its tokens, then other quantities.

        Returns:
            Indices of the response tokens, their quantities, and the observations' part of the mean cross-entropy over
            the mini-batch's.
        """
        assert self.observation_E is not None
        assert self.inputs.observed is not None
        token_M = self.inputs.observed.response_E.to(batch.token_M.device)[batch.token_M]
        is_response = token_M >= 0
        terms = -quantities_E[0][~is_response] / max(self.num_observations, 1)
        self.observation_E[batch.token_M[~is_response]] = terms.detach().to(self.observation_E.dtype)
        return token_M[is_response], [values_E[is_response] for values_E in quantities_E], terms.sum()
