"""Several objectives on the same trajectories: their gradients before any step, side by side.

    trainings -> a forward pass of each group's segments, turn by turn -> a backward pass for each objective
              -> sums over groups, over turns -> spreads, turns' parts, inner products

All objectives share the forward passes. Memory holds J * (K + 1) gradients during a measurement, each as large as the
policy.

Legend: N response tokens of the update, M those of a micro-batch, J objectives, K turns.
"""

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.batches import MicroBatch
from starpo.ragen.learning.learners.gradient_spread import GradientSpread, GradientSums
from starpo.ragen.learning.learners.spans import KINDS, UNKNOWN
from starpo.ragen.learning.learners.tokens import ResponseTokens
from starpo.ragen.learning.learners.trained_model import TorchModel
from starpo.ragen.learning.learners.training import Training, loss_terms, scored_for


@dataclass(frozen=True)
class Signs:
    """Signs of the advantages of a set of tokens that have a loss.

    Attributes:
        num_tokens: Number of tokens.
        positive: Share of them with a positive advantage.
        negative: Share of them with a negative advantage; the remaining ones have an advantage of 0.
    """

    num_tokens: int
    positive: float
    negative: float


@dataclass(frozen=True)
class MeasuredObjective:
    """Gradient g of one objective: of the policy's loss over all trajectories as one mini-batch, before any step.

    Attributes:
        groups: Spread of the gradients of single groups; their mean is g.
        turn_norms: Norm of g_k, the contribution of the tokens of turn k; the contributions add up to g. [K]
        turn_shares: `<g_k, g> / |g|^2`; they add up to 1, and a turn that pulls against the others has a negative
            share. [K]; empty if g is 0.
        turn_signs: Signs of the advantages by turn. [K]
        kind_signs: Signs of the advantages of 'think', 'answer' and 'format' tokens; empty if the kinds are unknown.
    """

    groups: GradientSpread
    turn_norms: list[float]
    turn_shares: list[float]
    turn_signs: list[Signs]
    kind_signs: dict[str, Signs]


@dataclass(frozen=True)
class MeasuredObjectives:
    """Gradients of several objectives.

    Attributes:
        objectives: The objectives in the order given. [J]
        gram: Inner products of their gradients. float64 [J, J]
    """

    objectives: list[MeasuredObjective]
    gram: np.ndarray

    @property
    def cosines(self) -> np.ndarray:
        """Pairwise cosines of the gradients, 1 on the diagonal; NaN where a gradient is 0. float64 [J, J]"""
        norms = np.sqrt(np.diag(self.gram))
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.clip(self.gram / np.outer(norms, norms), -1.0, 1.0)
        np.fill_diagonal(found, np.where(norms > 0, 1.0, np.nan))
        return found


def able_to_measure(configs: Sequence[UpdateConfig]) -> UpdateConfig:
    """Return settings of a learner that has the models that these objectives need: a reference, and a critic or a
    process reward model, of which a checkpoint has at most one."""
    most = next((config for config in configs if config.needs & {"critic", "prm"}), configs[0])
    kl_coefficient = max(config.kl_coefficient for config in configs)
    return most.model_copy(update={"learner": "torch", "kl_coefficient": kl_coefficient})


def measure(trainings: Sequence[Training]) -> MeasuredObjectives:
    """Measure the objectives of trainings that differ only in their settings and in what follows from these.

    Raises:
        LearnerError: If a loss is not finite.
    """
    first = trainings[0]
    model, tokens = first.models["policy"], first.tokens
    assert isinstance(model, TorchModel)
    everything_N = torch.ones(len(tokens), dtype=torch.bool)
    terms_of = [training.policy_terms(everything_N, training.targets.advantages_N) for training in trainings]
    asked = scored_for({term for training in trainings for term in loss_terms(training.config)})

    def gradients(batch: MicroBatch) -> list[tuple[int, list[Tensor]]]:
        """Return (turn, contribution of its tokens to the gradient of every objective) for each turn."""
        scored_M = model(batch, first.context.temperature, asked)
        losses_M = []
        for training, of_tokens in zip(trainings, terms_of, strict=True):
            terms, weights_M = of_tokens(batch, *scored_M)
            losses_M.append(reduce(operator.add, terms.values()) * weights_M)
            training.check_finite(losses_M[-1].detach(), batch, "policy")
        turn_M = tokens.turn_N[batch.token_M.cpu()].to(scored_M[0].device)
        turns = torch.unique(turn_M).tolist()
        found = model.flat_gradients([loss_M[turn_M == turn].sum() for turn in turns for loss_M in losses_M])
        return [(turn, found[place * len(losses_M) :][: len(losses_M)]) for place, turn in enumerate(turns)]

    cells = _cells(first)
    batches, group_of = [], []
    for group, segments in cells:
        own = first.batches_of(segments)
        batches += own
        group_of += [group] * len(own)
    num_groups, num_turns = len(set(group_of)), int(tokens.turn_N.max()) + 1
    sums = [GradientSums() for _ in trainings]
    of_turns: list[list[Tensor | None]] = [[None] * num_turns for _ in trainings]
    of_group: list[Tensor | None] = [None] * len(trainings)
    results = first.runner.run(gradients, batches)
    for number, (group, result) in enumerate(zip(group_of, results, strict=True)):
        for turn, found in result:
            for j, gradient in enumerate(found):
                of_turns[j][turn] = _plus(of_turns[j][turn], gradient)
                of_group[j] = _plus(of_group[j], gradient)
        if number + 1 == len(group_of) or group_of[number + 1] != group:
            for j, whole in enumerate(of_group):
                assert whole is not None
                sums[j].add(num_groups * whole)
            of_group = [None] * len(trainings)
    wholes = [own.total / own.num for own in sums if own.total is not None]
    stacked = torch.stack(wholes)
    return MeasuredObjectives(
        [_measured(*of, tokens) for of in zip(trainings, sums, wholes, of_turns, strict=True)],
        (stacked @ stacked.T).numpy(),
    )


def _cells(training: Training) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (group, its segments that begin with the same turn); the cells of a group are consecutive."""
    tokens = training.tokens
    first_turn = tokens.turn_N[tokens.segment_start].numpy()
    cells: dict[str, dict[int, list[int]]] = {}
    for segment, trajectory in enumerate(tokens.segment_trajectory.tolist()):
        group = cells.setdefault(training.trajectories[trajectory].group_id, {})
        group.setdefault(int(first_turn[segment]), []).append(segment)
    for group_id, group in cells.items():
        for _, segments in sorted(group.items()):
            yield group_id, np.array(segments)


def _plus(total: Tensor | None, gradient: Tensor) -> Tensor:
    """Add a gradient to a total in place; the first one is cloned, because the caller may share it."""
    return gradient.clone() if total is None else total.add_(gradient)


def _measured(
    training: Training, sums: GradientSums, whole: Tensor, turns: Sequence[Tensor | None], tokens: ResponseTokens
) -> MeasuredObjective:
    square = float(whole @ whole)
    parts = [torch.zeros_like(whole) if part is None else part.double() for part in turns]
    has_loss_N, advantages_N = tokens.mask(training.config.loss_on), training.targets.advantages_N.cpu()

    def signs(is_in_N: Tensor) -> Signs:
        own_N = advantages_N[is_in_N & has_loss_N]
        shares = [float((own_N.sign() == sign).double().mean()) if len(own_N) else 0.0 for sign in (1, -1)]
        return Signs(len(own_N), *shares)

    is_told_apart = bool((tokens.kind_N != UNKNOWN).any())
    return MeasuredObjective(
        groups=sums.spread(),
        turn_norms=[float(part.norm()) for part in parts],
        turn_shares=[float(part @ whole) / square for part in parts] if square > 0 else [],
        turn_signs=[signs(tokens.turn_N == turn) for turn in range(len(turns))],
        kind_signs={name: signs(tokens.mask(name)) for name in KINDS} if is_told_apart else {},
    )
