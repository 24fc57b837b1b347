"""What an update knows before its first step: scores of the tokens, credit, and the inputs of its losses.

    score (policy, reference, critic; the process reward model takes its step) -> credit -> inputs of the losses

Legend: N response tokens of the update.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.lookup import attached
from starpo.ragen.core.registry import ADVANTAGES
from starpo.ragen.learning.learners.credit import Credit, assign_credit
from starpo.ragen.learning.learners.data.batches import MicroBatch
from starpo.ragen.learning.learners.models.critic import evaluate
from starpo.ragen.learning.learners.models.scoring import Scores
from starpo.ragen.learning.learners.policy_loss import LossInputs
from starpo.ragen.learning.learners.scored_share import KNOWN_WITHIN, ScoredSample
from starpo.ragen.learning.learners.update_inputs import UpdateInputs
from starpo.ragen.learning.learners.validity import validity

FitPRM = Callable[[UpdateInputs, Scores, Sequence[MicroBatch]], tuple[Tensor, dict[str, float]]]
"""Trains the model 'prm' of an update before its first step. Arguments: the update, scores of the policy, all
micro-batches. Returned: the rewards that the model gives each token, float64 [N], and metrics."""


@dataclass(frozen=True)
class Start:
    """Scores of the tokens before the first step, independent of the objective; on the CPU.

    Attributes:
        measured: Scores of the policy as computed; NaN for tokens that it did not score.
        old: The same with a log-prob for every token, which losses take.
        ref_logprobs_N: Log-probs under the reference policy; None without one.
        values_N: The critic's values; None without a critic.
        implicit_rewards_N: Rewards of the process reward model after its step, float64; None without one.
        prm_metrics: Metrics of that step.
    """

    measured: Scores
    old: Scores
    ref_logprobs_N: Tensor | None
    values_N: Tensor | None
    implicit_rewards_N: Tensor | None
    prm_metrics: dict[str, float]


@dataclass(frozen=True)
class Prepared:
    """State of an update before its first step.

    Attributes:
        start: Scores of the tokens.
        credit: Advantages and value targets, on the CPU.
        loss_inputs: Inputs of the policy's loss, on the learner's device.
        validity: Distance of the policy from the behaviour policy, as metrics.
    """

    start: Start
    credit: Credit
    loss_inputs: LossInputs
    validity: dict[str, float]

    @property
    def effective_sample_size(self) -> float:
        """Effective sample size of the trajectories before the first step, as a share."""
        return self.validity["update/validity_before/effective_sample_size_trajectories"]


def score_start(
    inputs: UpdateInputs, batches: Sequence[MicroBatch], sample: ScoredSample | None = None, *, with_collision: bool
) -> Start:
    """Score the tokens under all models; a process reward model takes its step first.

    Args:
        inputs: The update.
        batches: All tokens.
        sample: Tokens that the policy scores; None for all.
        with_collision: Also compute `Scores.collision_N`.

    Raises:
        LearnerError: If a log-probability is not finite.
    """
    tokens, policy = inputs.tokens, inputs.models["policy"]
    sample = sample or ScoredSample.everything(len(tokens), batches)
    old = measured = sample.only(inputs.score(policy, sample.batches, with_collision=with_collision))
    if not sample.is_all:
        if sample.largest_gap(measured.logprobs_N, tokens.behaviour_logprobs_N) <= KNOWN_WITHIN:
            old = replace(measured, logprobs_N=tokens.behaviour_logprobs_N)
        else:
            old = measured = inputs.score(policy, batches)
    ref_N = values_N = None
    if inputs.open_reference is not None:
        with inputs.open_reference() as reference:
            ref_N = inputs.score(reference, batches).logprobs_N
    if "critic" in inputs.models:
        values_N = evaluate(inputs.models["critic"], batches, len(tokens), inputs.runner, inputs.dp_group)
    implicit_N, metrics = fit_prm(inputs, old, batches) if "prm" in inputs.models else (None, {})
    return Start(measured, old, ref_N, values_N, implicit_N, metrics)


def fit_prm(inputs: UpdateInputs, old: Scores, batches: Sequence[MicroBatch]) -> tuple[Tensor, dict[str, float]]:
    """Train the process reward model as the estimator declares it; return its rewards, and metrics.

    Raises:
        LearnerError: If the estimator needs such a model and does not say how it is trained.
    """
    fit: FitPRM | None = attached(ADVANTAGES, inputs.config.advantage, "fit_prm")
    if fit is None:
        raise LearnerError(
            f"advantage = '{inputs.config.advantage}' needs a process reward model, and does not say how it is "
            "trained: give the function an attribute fit_prm, as docs/extend.md describes"
        )
    return fit(inputs, old, batches)


def prepare(inputs: UpdateInputs, start: Start) -> Prepared:
    """Assign credit, and collect the inputs of the losses."""
    config, tokens, old = inputs.config, inputs.tokens, start.old
    credit = assign_credit(
        inputs.trajectories,
        tokens,
        config,
        old,
        start.ref_logprobs_N,
        start.values_N,
        inputs.context.kept_share,
        start.implicit_rewards_N,
    )
    loss_inputs = LossInputs.of(
        tokens, config, old.logprobs_N, start.ref_logprobs_N, credit.advantages_N, inputs.runner.device
    )
    return Prepared(start, credit, loss_inputs, measure_validity(inputs, "before", start.measured.logprobs_N, credit))


def measure_validity(inputs: UpdateInputs, when: str, logprobs_N: Tensor, credit: Credit) -> dict[str, float]:
    """Compare the policy with the behaviour policy: `update/validity_before/...`, `update/validity_after/...`."""
    config, has_loss_N = inputs.config, inputs.tokens.mask(inputs.config.loss_on)
    values = validity(inputs.tokens, logprobs_N, credit.advantages_N, config.clip_low, config.clip_high, has_loss_N)
    return {f"update/validity_{when}/{name}": value for name, value in values.items()}
