"""`TorchLearner`: an update in one process, on the CPU or one GPU.

    score (old, reference, values) -> credit -> training steps -> score again -> samples, metrics

The policy is always in evaluation mode: with dropout the ratio to its own old self would not be 1.
Legend: N response tokens of the update.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ragen.config.update import UpdateConfig
from ragen.errors import LearnerError, PolicyError
from ragen.learn.batches import MicroBatch, micro_batches
from ragen.learn.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from ragen.learn.credit import Credit, assign_credit
from ragen.learn.critic import Critic, evaluate
from ragen.learn.learner import UpdateContext, UpdateResult
from ragen.learn.ledger import Ledger
from ragen.learn.optimisers import ModelOptimiser, learning_rate_factor
from ragen.learn.passes import Passes
from ragen.learn.scoring import Scores, check_output_layer, score
from ragen.learn.tokens import ResponseTokens
from ragen.learn.training import Targets, Training
from ragen.learn.trajectories import Trajectory
from ragen.learn.validity import validity
from ragen.objectives.kl import KL_ESTIMATORS
from ragen.policy.load import load_policy


class TorchLearner:
    """Implements `ragen.learn.learner.Learner`."""

    def __init__(self, config: UpdateConfig, num_threads: int | None = None) -> None:
        """Prepare a learner that holds nothing yet.

        Args:
            config: The update's settings.
            num_threads: Micro-batches that are computed side by side on a CPU; the result does not depend on it. None:
                as many as torch is set to use.
        """
        self.config = config
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.is_deterministic = self.device.type == "cpu"
        self._passes = Passes(self.device, num_threads, config.dtype)
        self._checkpoint: Checkpoint | None = None
        self._checkpoint_key: str | None = None
        self._optimisers: dict[str, ModelOptimiser] = {}
        self._num_restarted = 0
        self._reference: PreTrainedModel | None = None
        self._reference_folder: str | None = None

    def load(self, folder: str, checkpoint_key: str, reference_folder: str | None) -> None:
        """Be at this checkpoint: a no-op when already there (see `Learner.load`)."""
        self._load_reference(reference_folder)
        if checkpoint_key == self._checkpoint_key:
            return
        checkpoint = load_checkpoint(folder)
        checkpoint.policy.to(self.device)  # type: ignore[arg-type]
        check_output_layer(checkpoint.policy)
        optimisers = {"policy": ModelOptimiser(checkpoint.policy, self.config.optimiser)}
        if self.config.needs_critic:
            checkpoint.critic = (checkpoint.critic or Critic.from_policy(checkpoint.policy)).to(self.device)
            optimisers["critic"] = ModelOptimiser(checkpoint.critic, self.config.critic.optimiser)
        else:
            checkpoint.critic = None
        self._num_restarted = _restore(optimisers, checkpoint, folder)
        self._optimisers, self._checkpoint, self._checkpoint_key = optimisers, checkpoint, checkpoint_key

    def update(self, trajectories: list[Trajectory], context: UpdateContext) -> UpdateResult:
        """Train on these trajectories (see `Learner.update`)."""
        checkpoint, tokens = self._loaded(), _trainable_tokens(trajectories)
        self._checkpoint = self._checkpoint_key = None  # weights that a failed update has half changed are never saved
        with self._passes.alone():
            result = self._update(checkpoint, tokens, trajectories, context)
        self._checkpoint = checkpoint
        return result

    def gradient(self, trajectories: list[Trajectory], context: UpdateContext) -> Tensor:
        """The policy's gradient before any step (see `Learner.gradient`)."""
        checkpoint, tokens = self._loaded(), _trainable_tokens(trajectories)
        with self._passes.alone():
            prepared = self._prepare(checkpoint, tokens, trajectories, context)
            ledger = Ledger(tokens, self.device)
            return Training(
                self.config, context, checkpoint, self._optimisers, trajectories, tokens, prepared.targets, ledger,
                self._passes,
            ).gradient()  # fmt: skip

    def save(self, folder: str, checkpoint_key: str) -> None:
        """Write the present checkpoint, and be at `checkpoint_key` from now on (see `Learner.save`)."""
        checkpoint = self._loaded()
        checkpoint.optimiser_states = {name: optimiser.state_tensors() for name, optimiser in self._optimisers.items()}
        types = {name: optimiser.config.type for name, optimiser in self._optimisers.items()}
        checkpoint.trainer = checkpoint.trainer.model_copy(update={"optimisers": types})
        save_checkpoint(checkpoint, folder)
        self._checkpoint_key = checkpoint_key

    def _update(
        self, checkpoint: Checkpoint, tokens: ResponseTokens, trajectories: list[Trajectory], context: UpdateContext
    ) -> UpdateResult:
        config, clock = self.config, _Clock()
        prepared = self._prepare(checkpoint, tokens, trajectories, context)
        batches, old, ref_N, values_N = prepared.batches, prepared.old, prepared.ref_logprobs_N, prepared.values_N
        credit, targets = prepared.credit, prepared.targets
        clock.lap("score_s")

        ledger = Ledger(tokens, self.device)
        num_steps = Training(
            config, context, checkpoint, self._optimisers, trajectories, tokens, targets, ledger, self._passes
        ).run()
        counts = checkpoint.trainer
        checkpoint.trainer = counts.model_copy(
            update={"num_updates": counts.num_updates + 1, "num_steps": counts.num_steps + num_steps}
        )
        clock.lap("train_s")

        after_N = old.logprobs_N
        if num_steps:
            after_N = self._score(checkpoint.policy, batches, tokens, trajectories, context).logprobs_N
        gap_N = (old.logprobs_N - tokens.behaviour_logprobs_N).abs()
        drift_N = tokens.behaviour_logprobs_N - after_N
        kl_N = None if ref_N is None else KL_ESTIMATORS[config.kl_estimator](after_N, ref_N)
        samples = ledger.samples(trajectories, credit.advantages_N, old.entropy_N, gap_N, drift_N, kl_N)
        metrics = {
            "update/num_trajectories": len(trajectories),
            "update/num_without_tokens": int((tokens.lengths_B == 0).sum()),
            "update/num_tokens": len(tokens),
            "update/num_steps": num_steps,
            "update/num_restarted_optimisers": self._num_restarted,
            "update/entropy": _mean(old.entropy_N),
            "update/advantage_mean": _mean(credit.advantages_N),
            "update/advantage_std": float(credit.advantages_N.double().std(correction=0)),
            "update/old_behaviour_gap_mean": _mean(gap_N),
            "update/old_behaviour_gap_max": float(gap_N.max()),
            "update/kl_behaviour": _mean(drift_N),
            **self._validity("before", tokens, old.logprobs_N, credit.advantages_N),
            **self._validity("after", tokens, after_N, credit.advantages_N),
            **({} if kl_N is None else {"update/kl_reference": _mean(kl_N)}),
            **_explained_variance(values_N, credit.value_targets_N),
            **self._learning_rates(context),
            **ledger.step_metrics(),
            **ledger.token_metrics(),
        }
        self._num_restarted = 0
        clock.lap("review_s")
        num_trained = config.num_epochs * sum(len(segment.token_ids) for segment in tokens.segments)
        timings = clock.laps | {"trained_tokens_per_s": num_trained / clock.laps["train_s"]}
        return UpdateResult(samples, {name: float(value) for name, value in metrics.items()}, timings)

    def _prepare(
        self, checkpoint: Checkpoint, tokens: ResponseTokens, trajectories: list[Trajectory], context: UpdateContext
    ) -> "_Prepared":
        """Score the tokens and assign credit."""
        packed = micro_batches(tokens, np.arange(len(tokens.segments)), self.config.micro_batch_tokens)
        batches = [batch.to(self.device) for batch in packed]
        old = self._score(checkpoint.policy, batches, tokens, trajectories, context)
        ref_N = None
        if self._reference is not None:
            ref_N = self._score(self._reference, batches, tokens, trajectories, context).logprobs_N
        values_N = None
        if checkpoint.critic is not None:
            values_N = evaluate(checkpoint.critic, batches, len(tokens), self._passes)
        credit = assign_credit(trajectories, tokens, self.config, old.logprobs_N, ref_N, values_N)
        targets = Targets(
            behaviour_logprobs_N=tokens.behaviour_logprobs_N.to(self.device),
            old_logprobs_N=old.logprobs_N.to(self.device),
            advantages_N=credit.advantages_N.to(self.device),
            ref_logprobs_N=None if ref_N is None else ref_N.to(self.device),
            values_N=None if values_N is None else values_N.to(self.device),
            value_targets_N=None if credit.value_targets_N is None else credit.value_targets_N.to(self.device),
        )
        return _Prepared(batches, old, ref_N, values_N, credit, targets)

    def _score(
        self,
        model: PreTrainedModel,
        batches: Sequence[MicroBatch],
        tokens: ResponseTokens,
        trajectories: Sequence[Trajectory],
        context: UpdateContext,
    ) -> Scores:
        scores = score(model, batches, len(tokens), context.temperature, self._passes)
        is_bad_N = ~torch.isfinite(scores.logprobs_N)
        if is_bad_N.any():
            culprit = trajectories[int(tokens.trajectory_N[is_bad_N][0])]
            raise LearnerError(
                f"a token of trajectory '{culprit.trajectory_id}' has a log-probability that is not finite: the "
                "weights of the policy or of the reference are damaged. Go back to an earlier checkpoint, and lower "
                "the learning rates of update.optimiser"
            )
        return scores

    def _load_reference(self, folder: str | None) -> None:
        if self.config.kl_coefficient == 0 or (folder is not None and folder == self._reference_folder):
            return
        if folder is None:
            raise LearnerError(
                f"update.kl_coefficient = {self.config.kl_coefficient} needs the reference policy, and none was given; "
                "give the folder of the run's first checkpoint, or set update.kl_coefficient = 0"
            )
        reference, _ = load_policy(folder, torch.float32)
        self._reference = reference.to(self.device).requires_grad_(False)  # type: ignore[arg-type]
        self._reference_folder = folder

    def _validity(
        self, when: str, tokens: ResponseTokens, logprobs_N: Tensor, advantages_N: Tensor
    ) -> dict[str, float]:
        """`update/validity_before/...`, `update/validity_after/...`: the policy against the behaviour policy."""
        values = validity(tokens, logprobs_N, advantages_N, self.config.clip_low, self.config.clip_high)
        return {f"update/validity_{when}/{name}": value for name, value in values.items()}

    def _learning_rates(self, context: UpdateContext) -> dict[str, float]:
        config = self.config.optimiser
        factor = learning_rate_factor(config, context.iteration, context.num_iterations)
        rates = {"update/learning_rate": config.learning_rate * factor}
        if config.type == "muon":
            rates["update/matrix_learning_rate"] = config.matrix_learning_rate * factor
        return rates

    def _loaded(self) -> Checkpoint:
        if self._checkpoint is None:
            raise LearnerError("the learner holds no policy yet; call load() with a checkpoint's folder first")
        return self._checkpoint


@dataclass(frozen=True)
class _Prepared:
    """What is known of an update before its first step; tensors on the CPU but for `batches` and `targets`."""

    batches: list[MicroBatch]
    old: Scores
    ref_logprobs_N: Tensor | None
    values_N: Tensor | None
    credit: Credit
    targets: Targets


class _Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name], self._last = now - self._last, now


def _restore(optimisers: dict[str, ModelOptimiser], checkpoint: Checkpoint, folder: str) -> int:
    """Give optimisers their stored state; returns how many begin anew because their type was changed."""
    num_restarted = 0
    for name, optimiser in optimisers.items():
        stored_type = checkpoint.trainer.optimisers.get(name)
        if stored_type is None:
            continue
        if stored_type != optimiser.config.type:
            num_restarted += 1
            continue
        try:
            optimiser.load_state_tensors(checkpoint.optimiser_states[name])
        except KeyError as error:
            raise PolicyError(
                f"the state of the {name}'s optimiser in '{folder}' speaks of {error}, which the {name} does not have; "
                "the files in that folder do not belong together. Take the checkpoint from the store again"
            ) from error
    return num_restarted


def _trainable_tokens(trajectories: list[Trajectory]) -> ResponseTokens:
    tokens = ResponseTokens(trajectories)
    if not len(tokens):
        raise LearnerError(
            f"nothing to train on: {len(trajectories)} trajectories with 0 response tokens. Keep more groups "
            "(settings of filter), or pass the checkpoint on unchanged"
        )
    return tokens


def _mean(values_N: Tensor) -> float:
    return float(values_N.double().mean())


def _explained_variance(values_N: Tensor | None, targets_N: Tensor | None) -> dict[str, float]:
    """Share of the targets' variance that the critic knew of; absent where there is no critic or no variance."""
    if values_N is None or targets_N is None:
        return {}
    variance = float(targets_N.double().var(correction=0))
    residual = float((targets_N.double() - values_N.double()).var(correction=0))
    return {"update/explained_variance": 1 - residual / variance} if variance > 0 else {}
