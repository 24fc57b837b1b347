"""`TorchLearner`: an update in one process, on the CPU or one GPU (see `ragen.learning.learners.update`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.device import Device
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.allocator import give_back_freed_memory
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.companions.loading import CompanionModels
from starpo.ragen.learning.learners.data.tokens import trainable_tokens
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.data_parallel import SingleProcess
from starpo.ragen.learning.learners.learner import NOTHING_LOADED, OnProgress, UpdateContext, UpdateResult
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.checkpoint import (
    Checkpoint,
    load_trained,
    restore,
    save_checkpoint,
    save_policy,
)
from starpo.ragen.learning.learners.models.optimisers import ModelOptimiser
from starpo.ragen.learning.learners.models.scoring import ResponseScores, check_output_layer, network_of, row_tokens
from starpo.ragen.learning.learners.models.trained_model import TorchModel
from starpo.ragen.learning.learners.update import update_models
from starpo.ragen.learning.learners.update_inputs import UpdateInputs
from starpo.schemas.manifest import FileEntry


class TorchLearner:
    """Implements `ragen.learning.learners.learner.Learner`."""

    def __init__(self, config: UpdateConfig, num_threads: int | None = None) -> None:
        """Create a learner without a checkpoint.

        Args:
            config: The update's settings.
            num_threads: Micro-batches that run in parallel on a CPU; results do not depend on it. None for torch's
                number of threads.
        """
        self.config = config
        self.device = Device.here()
        self.is_deterministic = self.device.is_repeatable
        self._runner = MicroBatchRunner(self.device, num_threads, config.dtype)
        self._checkpoint: Checkpoint | None = None
        self.checkpoint_key: str | None = None
        self._models: dict[str, TorchModel] = {}
        self._num_restarted = self._row_tokens = 0
        self._companions = CompanionModels(config, partial(_load_frozen, self.device))  # no cycle: freed when dropped

    def load(self, folder: str | None, checkpoint_key: str, reference_folder: str | None) -> None:
        """Load a checkpoint; a no-op if it is loaded already (see `Learner.load`)."""
        is_there = checkpoint_key == self.checkpoint_key
        self._companions.load(reference_folder, None if is_there else folder)
        if is_there:
            return
        assert folder is not None
        config = self.config
        checkpoint = load_trained(folder, config, checkpoint_key, getattr(torch, config.dtype))
        for model in checkpoint.trained.values():
            model.to(self._runner.device)
        check_output_layer(checkpoint.policy)
        self._row_tokens = row_tokens(checkpoint.policy)
        models = {
            name: TorchModel(network_of(model)[0], ModelOptimiser(model, config.optimisers[name]))
            for name, model in checkpoint.trained.items()
        }
        self._num_restarted = restore(models, checkpoint, folder)
        self._models, self._checkpoint, self.checkpoint_key = models, checkpoint, checkpoint_key

    def update(
        self, trajectories: list[Trajectory], context: UpdateContext, on_progress: OnProgress | None = None
    ) -> UpdateResult:
        """Train on these trajectories (see `Learner.update`)."""
        checkpoint, inputs = self._loaded(), self._inputs(trajectories, context, on_progress)
        self._checkpoint = self.checkpoint_key = None  # weights partly changed by a failed update are never saved
        with self._runner.alone():
            result = update_models(inputs)
        give_back_freed_memory()
        checkpoint.trainer = checkpoint.trainer.after(result.metrics)
        self._num_restarted = 0
        self._checkpoint = checkpoint
        return result

    @contextmanager
    def at_start(self, trajectories: list[Trajectory], context: UpdateContext) -> Iterator[UpdateInputs]:
        """Context manager: the inputs of an update, for measurements at the loaded checkpoint, which must not change.

        Raises:
            LearnerError: If there is nothing to train on.
        """
        with self._runner.alone():
            yield self._inputs(trajectories, context)

    def save(self, folder: str, checkpoint_key: str) -> None:
        """Write the current checkpoint, which becomes the loaded one (see `Learner.save`)."""
        save_checkpoint(self._with_optimisers(), folder)
        self.checkpoint_key = checkpoint_key

    def save_policy(self, folder: str, checkpoint_key: str) -> list[FileEntry]:
        """Write the policy alone (see `Learner.save_policy`)."""
        files = save_policy(self._with_optimisers(), folder)
        self.checkpoint_key = checkpoint_key
        return files

    def _with_optimisers(self) -> Checkpoint:
        checkpoint = self._loaded()
        checkpoint.optimiser_states = {name: model.optimiser.state_tensors() for name, model in self._models.items()}
        types = {name: model.config.type for name, model in self._models.items()}
        checkpoint.trainer = checkpoint.trainer.model_copy(update={"optimisers": types})
        return checkpoint

    def _inputs(
        self, trajectories: list[Trajectory], context: UpdateContext, on_progress: OnProgress | None = None
    ) -> UpdateInputs:
        policy = self._models["policy"]
        return UpdateInputs(
            config=self.config,
            context=context,
            policy=policy,
            companions=self._companions.loaded(self._loaded().policy, policy, self._models),
            trajectories=trajectories,
            tokens=trainable_tokens(trajectories),
            row_tokens=self._row_tokens,
            runner=self._runner.reporting(on_progress),
            dp_group=SingleProcess(),
            num_restarted=self._num_restarted,
            entropy_level=self._loaded().trainer.entropy_level,
        )

    def _loaded(self) -> Checkpoint:
        if self._checkpoint is None:
            raise LearnerError(NOTHING_LOADED)
        return self._checkpoint


def _load_frozen(device: Device, folder: str) -> ResponseScores:
    policy, _ = load_policy(folder, torch.float32)
    check_output_layer(policy)
    return ResponseScores(policy.to(device.kind).requires_grad_(False))  # type: ignore[arg-type]
