"""`update_models`: one update, from scores to metrics, the same in every learner and for any number of ranks.

    score -> credit -> epochs: mini-batches (a step each): micro-batches (forward, loss, backward) -> score again

Policies are always in evaluation mode: with dropout, the ratio of an unchanged policy to itself would not be 1.
Legend: N response tokens of the update.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from starpo.ragen.config.plugin_calls import plugin_call
from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import TURN_ORDERS
from starpo.ragen.learning.learners.data.batches import MicroBatch, num_steps, split_minibatches
from starpo.ragen.learning.learners.learner import UpdateResult
from starpo.ragen.learning.learners.ledger import Ledger
from starpo.ragen.learning.learners.micro_batch_runner import WITH_BACKWARD
from starpo.ragen.learning.learners.models.optimisers import learning_rate_factor
from starpo.ragen.learning.learners.models.trained_model import TrainedModel
from starpo.ragen.learning.learners.policy_loss import PolicyLoss
from starpo.ragen.learning.learners.preparation import Prepared, measure_validity, prepare, score_start
from starpo.ragen.learning.learners.scored_share import ScoredSample, scored_sample
from starpo.ragen.learning.learners.turn_orders import MiniBatch, Steps
from starpo.ragen.learning.learners.update_inputs import UpdateInputs
from starpo.ragen.learning.objectives.kl import KL_ESTIMATORS


def update_models(inputs: UpdateInputs) -> UpdateResult:
    """Update the models in place.

    Raises:
        LearnerError: If a loss, a gradient or a log-probability is not finite; the models may be partly updated.
    """
    config, policy, runner = inputs.config, inputs.policy, inputs.runner
    clock, ledger = _Clock(), Ledger(inputs.tokens, runner.device)
    everything, minibatches = inputs.micro_batches(), list(_minibatches(inputs))
    sample = scored_sample(inputs, everything)
    passes = [loaded.companion.passes for loaded in inputs.companions.values()]
    if sample.is_all and all(one.are_certain for one in passes):
        num_first = 1 + sum(one.scored + WITH_BACKWARD * one.trained_before for one in passes)
        _expect(inputs, minibatches, sample, num_first * len(everything))
    start = score_start(inputs, everything, sample, with_collision="probabilities" in config.needs)
    prepared = prepare(inputs, start)
    clock.lap("score_s")

    num_taken = 0
    for index, (is_in_N, batches) in enumerate(minibatches):
        _expect(inputs, minibatches[index:], sample)
        steps: Steps = iter(()) if _is_warm_up(inputs) else _policy_steps(inputs, prepared, is_in_N, batches)
        for is_now_N, advantages_N in steps:
            loss = PolicyLoss.over(inputs, replace(prepared.loss_inputs, advantages_N=advantages_N), is_now_N, ledger)
            if loss.weights_N.any():
                total = policy.accumulate(loss, batches, runner, loss.check)
                ledger.note_step("policy_loss", inputs.sum_over_ranks(total))
                if loss.observation_E is not None:
                    ledger.note_step("observation_loss", inputs.sum_over_ranks(float(loss.observation_E.sum())))
                ledger.note_step("gradient_norm", _step(inputs, policy, "policy", prepared))
                num_taken += 1
        _train_companions(inputs, prepared, is_in_N, batches, ledger)
    ledger.gather(inputs.dp_group)
    clock.lap("train_s")

    after_N = start.measured.logprobs_N
    if num_taken:
        after_N = sample.only(inputs.score(policy, sample.batches)).logprobs_N
    return _result(inputs, prepared, sample, after_N, num_taken, ledger, clock)


def _train_companions(
    inputs: UpdateInputs, prepared: Prepared, is_in_N: Tensor, batches: list[MicroBatch], ledger: Ledger
) -> None:
    """Take a step on a mini-batch of every companion that is trained beside the policy."""
    for name, loaded in inputs.companions.items():
        companion, model = loaded.companion, loaded.trained
        if model is None or not companion.passes.trained_beside:
            continue
        loss = companion.loss(inputs, model, prepared.start.columns[name], prepared.credit, is_in_N)
        if loss.weights_N.any():
            total = model.accumulate(loss, batches, inputs.runner, loss.check)
            ledger.note_step(companion.loss_name or f"{name}_loss", inputs.sum_over_ranks(total))
            ledger.note_step(f"{name}_gradient_norm", _step(inputs, model, companion.in_words, prepared))


def _is_warm_up(inputs: UpdateInputs) -> bool:
    """Whether companions are trained without the policy."""
    iteration = inputs.context.iteration
    return any(loaded.companion.is_alone(inputs.config, iteration) for loaded in inputs.companions.values())


def _expect(
    inputs: UpdateInputs,
    minibatches: Sequence[tuple[Tensor, list[MicroBatch]]],
    sample: ScoredSample,
    num_scoring: int = 0,
) -> None:
    """Announce the passes to come: `num_scoring` before the steps, those of the steps, and the scoring after them.

    Nothing is announced if an order of turns, which decides while it goes on, takes more than a step a mini-batch.
    """
    if inputs.config.turn_order != "together":
        return
    num_policy = 0 if _is_warm_up(inputs) else 1
    num_beside = sum(loaded.companion.passes.trained_beside for loaded in inputs.companions.values())
    num_batches = sum(len(batches) for _, batches in minibatches)
    num_in_steps = WITH_BACKWARD * (num_policy + num_beside) * num_batches
    inputs.runner.expect(num_scoring + num_in_steps + num_policy * len(sample.batches))


def _minibatches(inputs: UpdateInputs) -> Iterator[tuple[Tensor, list[MicroBatch]]]:
    """Yield the mini-batches of all epochs: their tokens, bool [N], and this process's micro-batches of them."""
    trainable = torch.nonzero(inputs.tokens.lengths_B)[:, 0].numpy()
    num_minibatches = num_steps(len(trainable), inputs.config)
    for epoch in range(inputs.config.num_epochs):
        for chosen in split_minibatches(len(trainable), num_minibatches, inputs.context.seed, epoch):
            members = trainable[chosen]
            yield inputs.is_of(members), inputs.loss_batches(members)


def _policy_steps(inputs: UpdateInputs, prepared: Prepared, is_in_N: Tensor, batches: list[MicroBatch]) -> Steps:
    """Return the policy's steps on a mini-batch.

    Raises:
        LearnerError: If the order of turns yields none.
    """
    minibatch = MiniBatch(
        config=inputs.config,
        tokens=inputs.tokens,
        is_in_N=is_in_N,
        advantages_N=prepared.loss_inputs.advantages_N,
        old_logprobs_N=prepared.start.old.logprobs_N,
        logprobs=lambda: inputs.score(inputs.policy, batches).logprobs_N,
    )
    steps = _ordered(inputs.config.turn_order, minibatch)
    first = next(steps, None)
    if first is None:
        raise LearnerError(
            f"update.turn_order = '{inputs.config.turn_order}' yields no step for a mini-batch of "
            f"{int(is_in_N.sum())} response tokens, which would teach nothing; an order of turns is a generator that "
            "yields at least one (ragen/learning/learners/turn_orders.py)"
        )
    return chain([first], steps)


def _ordered(turn_order: str, minibatch: MiniBatch) -> Steps:
    """Yield the steps of an order of turns; its code runs between them."""
    with plugin_call("turn order", TURN_ORDERS, turn_order):
        steps = iter(load(TURN_ORDERS, turn_order)(minibatch) or ())
    while True:
        with plugin_call("turn order", TURN_ORDERS, turn_order):
            step = next(steps, None)
        if step is None:
            return
        yield step


def _step(inputs: UpdateInputs, model: TrainedModel, name: str, prepared: Prepared) -> float:
    """Take a step of a model's optimiser; return the gradient norm before clipping.

    Raises:
        LearnerError: If the norm is not finite.
    """
    norm = model.step(_factor(inputs, model.config, prepared))
    if not np.isfinite(norm):
        raise LearnerError(
            f"the gradient of the {name} has norm {norm}, although every loss is finite. The stored checkpoint is "
            "untouched; lower update.optimiser's learning rates and update again"
        )
    return norm


def step_scale(reference: float | None, effective_sample_size: float) -> float:
    """Scale of an optimiser step: `min(1, sqrt(ESS / reference))` (VCPO); 1 without a reference."""
    return 1.0 if reference is None else min(1.0, effective_sample_size / reference) ** 0.5


def _result(
    inputs: UpdateInputs,
    prepared: Prepared,
    sample: ScoredSample,
    after_N: Tensor,
    num_taken: int,
    ledger: Ledger,
    clock: "_Clock",
) -> UpdateResult:
    """Build the samples and metrics of an update; `after_N` are the policy's log-probs after its last step."""
    config, tokens, start, credit = inputs.config, inputs.tokens, prepared.start, prepared.credit
    before = start.measured
    gap_N = (before.logprobs_N - tokens.behaviour_logprobs_N).abs()
    drift_N = tokens.behaviour_logprobs_N - after_N
    kl_N = None
    if start.ref_logprobs_N is not None:
        kl_N = KL_ESTIMATORS[config.kl_estimator](after_N, start.ref_logprobs_N)
    samples = ledger.samples(inputs.trajectories, credit.advantages_N, before.entropy_N, gap_N, drift_N, kl_N)
    metrics = {
        "update/num_trajectories": len(inputs.trajectories),
        "update/num_without_tokens": int((tokens.lengths_B == 0).sum()),
        "update/num_tokens": len(tokens),
        "update/num_steps": num_taken,
        "update/num_restarted_optimisers": inputs.num_restarted,
        "update/entropy": _mean(before.entropy_N),
        "update/advantage_mean": _mean(credit.advantages_N),
        "update/advantage_std": float(credit.advantages_N.double().std(correction=0)),
        "update/old_behaviour_gap_mean": _mean(gap_N),
        "update/old_behaviour_gap_max": float(gap_N[~gap_N.isnan()].max()),
        "update/kl_behaviour": _mean(drift_N),
        **({} if sample.is_all else {"update/old_is_from_rollout": float(start.old is not before)}),
        **start.companion_metrics,
        **prepared.validity,
        **prepared.loss_inputs.importance_metrics,
        **measure_validity(inputs, "after", after_N, credit),
        **({} if kl_N is None else {"update/kl_reference": _mean(kl_N)}),
        **_reviews(inputs, prepared),
        **_learning_rates(inputs, prepared),
        **ledger.step_metrics(),
        **ledger.token_metrics(),
    }
    clock.lap("review_s")
    num_trained = config.num_epochs * sum(len(segment.token_ids) for segment in tokens.segments)
    timings = clock.laps | {"trained_tokens_per_s": num_trained / clock.laps["train_s"]}
    noted = partial(_trained_tokens, ledger, tokens, inputs.trajectories, credit.advantages_N, before.entropy_N)
    return UpdateResult(samples, {name: float(value) for name, value in metrics.items()}, timings, noted)


def _trained_tokens(*noted: Any) -> pa.Table:
    from starpo.ragen.learning.learners.trained_tokens import trained_tokens

    return trained_tokens(*noted)


def _reviews(inputs: UpdateInputs, prepared: Prepared) -> dict[str, float]:
    """Return what companions report of their columns after all steps."""
    metrics: dict[str, float] = {}
    for name, loaded in inputs.companions.items():
        metrics |= loaded.companion.review(prepared.start.columns[name], prepared.credit)
    return metrics


def _learning_rates(inputs: UpdateInputs, prepared: Prepared) -> dict[str, float]:
    config = inputs.config.optimiser
    factor = _factor(inputs, config, prepared)
    rates = {"update/learning_rate": config.learning_rate * factor}
    if config.type == "muon":
        rates["update/matrix_learning_rate"] = config.matrix_learning_rate * factor
    return rates


def _factor(inputs: UpdateInputs, config: OptimiserConfig, prepared: Prepared) -> float:
    """Return the share of the peak learning rates that a step takes."""
    context = inputs.context
    factor = learning_rate_factor(config, context.iteration, context.num_iterations)
    return factor * step_scale(inputs.config.effective_sample_reference, prepared.effective_sample_size)


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
