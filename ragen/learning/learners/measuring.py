"""What an update would do, measured before any step: gradients, their spread over groups, other objectives, log-probs.

The learner does not change: where a companion has to take a step, a copy of it does.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.companion import companions_of
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.gradient_spread import GradientSpread, GradientSums, spread
from starpo.ragen.learning.learners.learner import Learner, UpdateContext
from starpo.ragen.learning.learners.ledger import Ledger
from starpo.ragen.learning.learners.loss_inputs import LossInputs
from starpo.ragen.learning.learners.models.trained_model import TorchModel
from starpo.ragen.learning.learners.policy_loss import PolicyLoss, Term, loss_terms
from starpo.ragen.learning.learners.preparation import Prepared, prepare, score_companion, score_start
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.learning.learners.update_inputs import LoadedCompanion, UpdateInputs


@dataclass(frozen=True)
class MeasuredObjectives:
    """Gradients of J objectives, of the policy's loss over all trajectories as one mini-batch, before any step.

    Attributes:
        groups: Spread of the gradients of single groups, whose mean is the objective's, in the order given. [J]
        gram: Inner products of the objectives' gradients. float64 [J, J]
    """

    groups: list[GradientSpread]
    gram: np.ndarray

    @property
    def cosines(self) -> np.ndarray:
        """Pairwise cosines of the gradients, 1 on the diagonal; NaN where a gradient is 0. float64 [J, J]"""
        norms = np.sqrt(np.diag(self.gram))
        with np.errstate(invalid="ignore", divide="ignore"):
            cosines_JJ = np.clip(self.gram / np.outer(norms, norms), -1.0, 1.0)
        np.fill_diagonal(cosines_JJ, np.where(norms > 0, 1.0, np.nan))
        return cosines_JJ


def able_to_measure(configs: Sequence[UpdateConfig]) -> UpdateConfig:
    """Return settings of a torch learner that has the companions that these objectives need: a reference, a teacher,
    and those of an estimator, since a checkpoint has those of one alone."""
    most = max(
        configs, key=lambda config: sum(not (one.name == "reference" or one.is_recorded) for one in config.companions)
    )
    weights = ("kl_coefficient", "distillation_coefficient")
    largest = {name: max(getattr(config, name) for config in configs) for name in weights}
    return most.model_copy(update={"learner": "torch", **largest})


def token_logprobs(learner: Learner, trajectories: list[Trajectory], context: UpdateContext) -> Tensor:
    """Score all response tokens under the policy.

    Returns:
        Log-probabilities at the context's temperature, nats, in the order of `ResponseTokens`, on the CPU. float32

    Raises:
        LearnerError: If there is no response token, or one's log-probability is not finite.
    """
    with at_start(learner, trajectories, context) as inputs:
        return inputs.score(inputs.policy, inputs.micro_batches()).logprobs_N


def initial_gradient(learner: Learner, trajectories: list[Trajectory], context: UpdateContext) -> Tensor:
    """Compute the gradient that an update would start with.

    Returns:
        Gradient of the policy's loss over all trajectories as one mini-batch at the loaded checkpoint: all trainable
        parameters concatenated, on the CPU. The ratio to the policy at the update's start is 1, so nothing is clipped
        unless `ratio_to` = 'behaviour'. float32

    Raises:
        LearnerError: If there is nothing to train on, or a loss or a log-probability is not finite.
    """
    with at_start(learner, trajectories, context) as inputs:
        return _gradient(inputs, _loss_inputs(inputs))


def gradient_spreads(
    learner: Learner, trajectories: list[Trajectory], context: UpdateContext, buckets: Sequence[Sequence[str]]
) -> list[dict[str, GradientSpread]]:
    """Measure the spread of the groups' gradients, for each term of the policy's loss.

    A group's gradient is its contribution to `initial_gradient` times the number of groups, so the mean over all groups
    is `initial_gradient`. Advantages are those of an update on all trajectories.

    Args:
        learner: A torch learner with the models that the update needs (`able_to_measure`).
        trajectories: Trajectories of the update.
        context: Position that the update would have in the run.
        buckets: Ids of the groups in each bucket; a group without response tokens has no gradient.

    Returns:
        Spreads of each bucket: 'task' and, if the settings have them, 'kl' and 'entropy', weighted as in the loss.

    Raises:
        LearnerError: As for `initial_gradient`.
    """
    with at_start(learner, trajectories, context) as inputs:
        given, members = _loss_inputs(inputs), _members(inputs)

        def gradients(bucket: Sequence[str], term: Term) -> Iterator[Tensor]:
            for group in bucket:
                if group in members:
                    yield len(members) * _gradient(inputs, given, members[group], term)

        return [{term: spread(gradients(bucket, term)) for term in loss_terms(inputs.config)} for bucket in buckets]


def measured_objectives(
    learner: Learner, trajectories: list[Trajectory], context: UpdateContext, configs: Sequence[UpdateConfig]
) -> MeasuredObjectives:
    """Measure the gradients of several objectives on the same trajectories, side by side.

    The old policy and its companions score the tokens once for all objectives that agree in the settings that a
    companion's column depends on (`Companion.variant`).

    Args:
        learner: A torch learner with the companions that the objectives need (`able_to_measure`).
        trajectories: Trajectories of the update.
        context: Position that the update would have in the run.
        configs: The objectives, at least one.

    Raises:
        LearnerError: As for `initial_gradient`.
    """
    with at_start(learner, trajectories, context) as inputs:
        return _measured(inputs, configs)


def prepared_objectives(
    inputs: UpdateInputs, configs: Sequence[UpdateConfig]
) -> Iterator[tuple[UpdateInputs, Prepared]]:
    """Prepare an update by each of several objectives on the same trajectories; the scores are shared.

    Args:
        inputs: The update, by a learner with the companions that the objectives need (`able_to_measure`).
        configs: The objectives, at least one.

    Yields:
        The update with an objective's settings, and what it knows before its first step.

    Raises:
        LearnerError: If an objective needs a companion that the learner does not have, or a number is not finite.
    """
    batches, held = inputs.micro_batches(), inputs.companions
    with_collision = any("probabilities" in config.needs for config in configs)
    start = score_start(_aside(inputs), batches, with_collision=with_collision)
    columns = {(name, loaded.companion.variant(inputs.config)): start.columns[name] for name, loaded in held.items()}
    for config in configs:
        one = replace(inputs, config=config)
        keys = {companion.name: (companion.name, companion.variant(config)) for companion in companions_of(config)}
        for name, key in keys.items():
            if name not in held:
                raise LearnerError(
                    f"'{config.advantage}' needs the companion '{name}', which the learner does not have, since "
                    f"'{inputs.config.advantage}' needs others: measure each with objectives that need the same"
                )
            if key not in columns:
                columns[key], _ = score_companion(_aside(one), name, start.old, batches)
        yield one, prepare(one, replace(start, columns={name: columns[key] for name, key in keys.items()}))


def _measured(inputs: UpdateInputs, configs: Sequence[UpdateConfig]) -> MeasuredObjectives:
    members = _members(inputs)
    spreads, means = [], []
    for one, prepared in prepared_objectives(inputs, configs):
        sums = GradientSums()
        for group in members.values():
            sums.add(len(members) * _gradient(one, prepared.loss_inputs, group))
        assert sums.total is not None
        spreads.append(sums.spread())
        means.append(sums.total / sums.num)
    mean = torch.stack(means)
    return MeasuredObjectives(spreads, (mean @ mean.T).numpy())


def at_start(
    learner: Learner, trajectories: list[Trajectory], context: UpdateContext
) -> AbstractContextManager[UpdateInputs]:
    """Context manager: the inputs of an update, of a torch learner (`TorchLearner.at_start`)."""
    assert isinstance(learner, TorchLearner), "only the torch learner measures (`able_to_measure`)"
    return learner.at_start(trajectories, context)


def _loss_inputs(inputs: UpdateInputs) -> LossInputs:
    aside, batches = _aside(inputs), inputs.micro_batches()
    start = score_start(aside, batches, with_collision="probabilities" in inputs.config.needs)
    return prepare(aside, start).loss_inputs


def _gradient(
    inputs: UpdateInputs, given: LossInputs, members: np.ndarray | None = None, only: Term | None = None
) -> Tensor:
    """Compute the gradient of the policy's loss over all trajectories as one mini-batch.

    Args:
        inputs: The update.
        given: Inputs of the loss.
        members: Indices of trajectories; only their contribution is returned. None for all.
        only: Term of the loss; only its contribution is returned. None for all.

    Returns:
        Gradient of all trainable parameters of the policy, concatenated in their order, on the CPU; 0 for parameters
        that the loss does not depend on. float32 [parameters]
    """
    policy, everything = cast(TorchModel, inputs.policy), torch.ones(len(inputs.tokens), dtype=torch.bool)
    loss = PolicyLoss.over(inputs, given, everything, Ledger(inputs.tokens, inputs.runner.device), only)
    policy.accumulate(loss, inputs.loss_batches(members), inputs.runner, loss.check)
    return policy.pop_gradient()


def _members(inputs: UpdateInputs) -> dict[str, np.ndarray]:
    """Return group -> indices of its trajectories that have response tokens."""
    members: dict[str, list[int]] = {}
    for index in np.flatnonzero(inputs.tokens.lengths_B.numpy()).tolist():
        members.setdefault(inputs.trajectories[index].group_id, []).append(index)
    return {group: np.array(indices) for group, indices in members.items()}


def _aside(inputs: UpdateInputs) -> UpdateInputs:
    """Return inputs in which the step that a companion takes before the policy's changes a copy of it."""

    def copied(loaded: LoadedCompanion) -> LoadedCompanion:
        if loaded.trained is None or not loaded.companion.passes.trained_before:
            return loaded
        return LoadedCompanion.of_trained(loaded.companion, copy.deepcopy(loaded.trained))

    return replace(inputs, companions={name: copied(loaded) for name, loaded in inputs.companions.items()})
