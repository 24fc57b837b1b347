"""`DeepSpeedLearner`: training over ranks, one GPU or one CPU thread each, with ZeRO 1 to 3 (DeepSpeed).

    trajectories -> every rank: `update` on its share -> rank 0: samples, metrics, checkpoint
    examples -> every rank: `fine_tune` on its share -> rank 0: trained weights

This process holds no weights, except for those of a fine-tuning. Ranks start at the first `load` or `fine_tune`,
persist between updates, and end with this process.
"""

import dataclasses
import os
import weakref
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from safetensors.torch import load_file
from transformers import PreTrainedModel

from starpo.ragen.agents.policy.source import resolve_policy
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.config.device import Device
from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError, MissingPackageError
from starpo.ragen.learning.examples import Example
from starpo.ragen.learning.learners.data.tokens import trainable_tokens
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.deepspeed.ranks import RankProcesses
from starpo.ragen.learning.learners.deepspeed.trajectory_table import pack_examples, pack_trajectories, unpack_table
from starpo.ragen.learning.learners.learner import NOTHING_LOADED, OnProgress, UpdateContext, UpdateResult
from starpo.schemas.manifest import FileEntry


class DeepSpeedLearner:
    """Implements `learner.Learner`; its checkpoints and those of the torch learner are interchangeable."""

    def __init__(
        self, config: UpdateConfig, num_threads: int | None = None, ranks: RankProcesses | None = None
    ) -> None:
        """Create a learner without a checkpoint.

        Args:
            config: The update's settings.
            num_threads: No effect: a rank computes on one thread, or on a GPU.
            ranks: Running ranks that no other learner uses any more; None to start new ones.

        Raises:
            MissingPackageError: If DeepSpeed is not installed.
            LearnerError: If there are fewer GPUs than ranks.
        """
        if find_spec("deepspeed") is None:
            raise MissingPackageError(
                "update.learner = 'deepspeed' needs the package deepspeed, which is not installed: "
                "pip install 'starpo[deepspeed]'"
            )
        self.config = config
        device, num_ranks = Device.here(), config.learner_config.sharding.num_ranks
        if device.is_gpu and num_ranks > device.num_gpus:
            raise LearnerError(
                f"update.deepspeed.num_ranks = {num_ranks}, but {device.num_gpus} GPUs are visible, and each rank "
                f"needs its own. Set it to at most {device.num_gpus}, or make more visible with CUDA_VISIBLE_DEVICES"
            )
        self.is_deterministic = not device.is_gpu
        self._ranks = ranks
        self._checkpoint_key: str | None = None
        self._is_loaded = False

    @property
    def checkpoint_key(self) -> str | None:
        """Key of the loaded checkpoint (see `Learner.checkpoint_key`); None also if the ranks have died."""
        return self._checkpoint_key if self._ranks is not None and self._ranks.are_alive else None

    @checkpoint_key.setter
    def checkpoint_key(self, key: str | None) -> None:
        self._checkpoint_key = key

    def load(self, folder: str | None, checkpoint_key: str, reference_folder: str | None) -> None:
        """Load a checkpoint; a no-op if it is loaded already (see `Learner.load`)."""
        self._ensure_ranks()
        self._ask(
            "load",
            config=self.config.model_dump_json(),
            folder=folder,
            checkpoint_key=checkpoint_key,
            reference_folder=reference_folder,
            is_there=checkpoint_key == self.checkpoint_key,
        )
        self.checkpoint_key, self._is_loaded = checkpoint_key, True

    def update(
        self, trajectories: list[Trajectory], context: UpdateContext, on_progress: OnProgress | None = None
    ) -> UpdateResult:
        """Train on these trajectories (see `Learner.update`)."""
        packed = self._packed(trajectories)
        self.checkpoint_key = None
        header, tables = self._ask("update", packed, on_progress, context=dataclasses.asdict(context))
        samples, tokens = (unpack_table(part) for part in (tables[: header["size"]], tables[header["size"] :]))
        return UpdateResult(samples, header["metrics"], header["timings"], lambda: tokens)

    def fine_tune(
        self,
        policy: PretrainedPolicy,
        model: PreTrainedModel,
        examples: Sequence[Example],
        folder: str | Path,
        on_progress: OnProgress | None = None,
        images: ImageTable | None = None,
    ) -> dict[str, float]:
        """Take the steps of a fine-tuning (see `FineTuner.fine_tune`)."""
        assert policy.fine_tuning is not None
        self._ensure_ranks()
        self._checkpoint_key, self._is_loaded = None, False
        trained = Path(folder) / "trained.safetensors"
        trained.parent.mkdir(parents=True, exist_ok=True)
        loss, _ = self._ask(
            "fine_tune",
            pack_examples(examples, images),
            on_progress,
            config=self.config.model_dump_json(),
            tuning=policy.fine_tuning.model_dump_json(),
            folder=resolve_policy(policy),
            output=str(trained),
        )
        strange = model.load_state_dict(load_file(trained), strict=False).unexpected_keys
        assert not strange, strange
        trained.unlink()
        return loss

    def save(self, folder: str, checkpoint_key: str) -> None:
        """Write the current checkpoint, which becomes the loaded one (see `Learner.save`)."""
        self._check_loaded()
        self._ask("save", folder=os.fspath(folder))
        self.checkpoint_key = checkpoint_key

    def save_policy(self, folder: str, checkpoint_key: str) -> list[FileEntry]:
        """Write the policy alone (see `Learner.save_policy`)."""
        self._check_loaded()
        header, _ = self._ask("save_policy", folder=os.fspath(folder))
        self.checkpoint_key = checkpoint_key
        return [FileEntry(**entry) for entry in header["files"]]

    def close(self) -> None:
        """End the ranks; `load` starts new ones."""
        if self._ranks is not None:
            self._ranks.close()
        self._ranks, self._checkpoint_key, self._is_loaded = None, None, False

    def _packed(self, trajectories: list[Trajectory]) -> bytes:
        self._check_loaded()
        trainable_tokens(trajectories)  # checked here, because an error in a rank would end all ranks
        return pack_trajectories(trajectories)

    def _check_loaded(self) -> None:
        if not self._is_loaded:
            raise LearnerError(NOTHING_LOADED)

    def _ensure_ranks(self) -> None:
        if self._ranks is not None and self._ranks.are_alive:
            return
        self.close()
        self._ranks = RankProcesses(self.config.learner_config.sharding.num_ranks)
        weakref.finalize(self, RankProcesses.close, self._ranks)

    def _ask(
        self, verb: str, data: bytes = b"", on_progress: OnProgress | None = None, **request: object
    ) -> tuple[dict, bytes]:
        assert self._ranks is not None
        try:
            return self._ranks.ask({"verb": verb, **request}, data, on_progress)
        except BaseException:
            self.close()
            raise
