"""What an update knows before its first step: scores of the tokens, credit, and the inputs of its losses.

    score (policy and its companions; some take a step first) -> credit -> inputs of the losses

Legend: N response tokens of the update.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.companion import Column
from starpo.ragen.learning.learners.credit import Credit, assign_credit
from starpo.ragen.learning.learners.data.batches import MicroBatch
from starpo.ragen.learning.learners.loss_inputs import LossInputs
from starpo.ragen.learning.learners.models.checkpoint import ENTROPY_LEVEL
from starpo.ragen.learning.learners.models.scoring import Scores
from starpo.ragen.learning.learners.scored_share import KNOWN_WITHIN, ScoredSample
from starpo.ragen.learning.learners.update_inputs import UpdateInputs
from starpo.ragen.learning.learners.validity import validity


@dataclass(frozen=True)
class Start:
    """Scores of the tokens before the first step, independent of the objective; on the CPU.

    Attributes:
        measured: Scores of the policy as computed; NaN for tokens that it did not score.
        old: The same with a log-prob for every token, which losses take.
        columns: Name of a companion -> its number for each token, [N].
        companion_metrics: Metrics of how these came about.
    """

    measured: Scores
    old: Scores
    columns: Mapping[str, Tensor]
    companion_metrics: Mapping[str, float]

    @property
    def ref_logprobs_N(self) -> Tensor | None:  # noqa: N802
        """Log-probs under the reference policy; None without one."""
        return self.columns.get("reference")


@dataclass(frozen=True)
class Prepared:
    """State of an update before its first step.

    Attributes:
        start: Scores of the tokens.
        credit: Advantages and value targets, on the CPU.
        loss_inputs: Inputs of the policy's loss, on the learner's device.
        validity: Distance of the policy from the behaviour policy, and the weight of an entropy bonus with a target, as
            metrics.
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
    """Score the tokens under the policy, then under its companions, of which some take a step first.

    Args:
        inputs: The update.
        batches: All tokens.
        sample: Tokens that the policy scores; None for all.
        with_collision: Also compute `Scores.collision_N`.

    Raises:
        LearnerError: If a log-probability is not finite.
    """
    tokens, policy = inputs.tokens, inputs.policy
    if sample is None or inputs.config.dtype != "float32":  # two computations in half precision differ by more
        sample = ScoredSample.everything(len(tokens), batches)
    old = measured = sample.only(inputs.score(policy, sample.batches, with_collision=with_collision))
    if not sample.is_all:
        if sample.largest_gap(measured.logprobs_N, tokens.behaviour_logprobs_N) <= KNOWN_WITHIN:
            old = replace(measured, logprobs_N=tokens.behaviour_logprobs_N)
        else:
            old = measured = inputs.score(policy, batches)
    columns: dict[str, Tensor] = {}
    metrics: dict[str, float] = {}
    for name in inputs.companions:
        columns[name], of_column = score_companion(inputs, name, old, batches)
        metrics |= of_column
    return Start(measured, old, columns, metrics)


def score_companion(inputs: UpdateInputs, name: str, old: Scores, batches: Sequence[MicroBatch]) -> Column:
    """Let a companion score the tokens (`Companion.score`).

    Raises:
        LearnerError: If a number is not finite, or there is not one for each token.
    """
    loaded = inputs.companions[name]
    with loaded.open() as model:
        column_N, metrics = loaded.companion.score(inputs, model, old, batches)
    if column_N.shape != inputs.tokens.trajectory_N.shape:
        raise LearnerError(
            f"companion '{name}' returned numbers of shape {list(column_N.shape)} for {len(inputs.tokens)} response "
            "tokens; expected one a token"
        )
    return column_N, metrics


def prepare(inputs: UpdateInputs, start: Start) -> Prepared:
    """Assign credit, and collect the inputs of the losses."""
    config, tokens, old = inputs.config, inputs.tokens, start.old
    credit = assign_credit(
        inputs.trajectories,
        tokens,
        config,
        old,
        start.columns,
        inputs.context.kept_share,
    )
    loss_inputs = LossInputs.of(
        tokens, config, old.logprobs_N, start.ref_logprobs_N, credit.advantages_N, inputs.runner.device, old.entropy_N
    )
    if config.distills_top_tokens:
        from starpo.ragen.learning.learners.data.taught import top_tokens

        ids_NK, logprobs_NK = (one.to(inputs.runner.device) for one in top_tokens(inputs.trajectories))
        loss_inputs = replace(loss_inputs, top_tokens=(ids_NK, logprobs_NK))
    metrics = measure_validity(inputs, "before", start.measured.logprobs_N, credit)
    if config.entropy_target is not None:
        from starpo.ragen.learning.objectives.entropy_target import steer

        level = config.entropy_coefficient if inputs.entropy_level is None else inputs.entropy_level
        entropy = float(start.measured.entropy_N.double().nanmean())
        coefficient, level = steer(level, entropy, config.entropy_target, config.entropy_step)
        loss_inputs = replace(loss_inputs, entropy_coefficient=coefficient)
        metrics |= {"update/entropy_coefficient": coefficient, ENTROPY_LEVEL: level}
    return Prepared(start, credit, loss_inputs, metrics)


def measure_validity(inputs: UpdateInputs, when: str, logprobs_N: Tensor, credit: Credit) -> dict[str, float]:
    """Compare the policy with the behaviour policy: `update/validity_before/...`, `update/validity_after/...`."""
    config, has_loss_N = inputs.config, inputs.tokens.mask(inputs.config.loss_on)
    values = validity(inputs.tokens, logprobs_N, credit.advantages_N, config.clip_low, config.clip_high, has_loss_N)
    return {f"update/validity_{when}/{name}": value for name, value in values.items()}
