"""Checkpoints: a Hugging Face folder that also holds the training state, so that training resumes exactly.

    config.json, generation_config.json, model.safetensors    the policy, as `save_pretrained` writes it
    tokenizer files                                            copied byte for byte
    <companion>.safetensors                                    each trained companion: critic, prm
    optimiser.safetensors    `<policy|companion>/<adamw|muon>/<slot>/<parameter>`
    trainer.json             counts, and the type of the optimiser of each model

With LoRA, the frozen weights are those of another checkpoint, named by `base.json`, and are not written again:

    adapter_config.json, adapter_model.safetensors    as PEFT writes them, instead of model.safetensors
    <companion>.safetensors                           its adapters and, of a critic, the head; the rest is the base's

Such a folder is read with its base's weights beside it (`ragen.agents.policy.complete`).

`transformers` loads the folder as it is. Nothing is pickled. No state of a random generator is stored: all randomness
of an update follows from the update's own seed.
"""

import errno
import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from starpo.ragen.agents.policy.adapter import ADAPTER_CONFIG, BASE, PREFIX, AdapterShape, base_of, read_adapter
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.policy.save import without_progress_bars
from starpo.ragen.config.update import LoraConfig, OptimiserConfig, UpdateConfig
from starpo.ragen.core.errors import LearnerError, PolicyError, named_line
from starpo.ragen.core.registry import COMPANIONS
from starpo.ragen.core.settings import Settings
from starpo.ragen.learning.learners.companion import Companion, companions_of, registered_companion
from starpo.ragen.learning.learners.models.adapters import (
    adapter_tensors,
    add_adapters,
    check_same_shape,
    load_adapter_tensors,
    merge_adapters,
    shape_of,
    write_adapter,
)
from starpo.ragen.learning.learners.models.tensor_file import entry_of_tensors, write_tensors
from starpo.schemas.manifest import FileEntry

_OPTIMISER = "optimiser.safetensors"
_TRAINER = "trainer.json"
_BASE_FILES = ("config.json", "generation_config.json")
_MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "model.safetensors.index.json",
    _TRAINER,
    "manifest.json",
    ADAPTER_CONFIG,
    BASE,
)


class HasOptimiser(Protocol):
    """Model whose optimiser state is stored under `<optimiser>/<slot>/<parameter>`."""

    config: OptimiserConfig

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Load a stored state; raise KeyError if it names an optimiser or a parameter that the model does not have."""


ENTROPY_LEVEL = "update/entropy_level"
"""Metric of an update with `update.entropy_target`: the level that the next update begins with."""


class TrainerState(Settings):
    """Contents of `trainer.json`. A policy folder without this file is a checkpoint before the first update."""

    format_version: int = 1
    """Version of the file format."""
    num_updates: int = 0
    """Updates since the start of training."""
    num_steps: int = 0
    """Optimiser steps of the policy in these updates."""
    optimisers: dict[str, str] = Field(default_factory=dict)
    """Model ('policy', or a companion) -> type of the optimiser whose state is in optimiser.safetensors."""

    entropy_level: float | None = None
    """Level of an entropy bonus that aims at a target (`update.entropy_target`); None, and not in the file, before its
    first update."""

    def after(self, metrics: Mapping[str, float]) -> "TrainerState":
        """Return the state after an update with these metrics."""
        changed = {
            "num_updates": self.num_updates + 1,
            "num_steps": self.num_steps + int(metrics["update/num_steps"]),
            "entropy_level": metrics.get(ENTROPY_LEVEL, self.entropy_level),
        }
        return self.model_copy(update=changed)


@dataclass
class Checkpoint:
    """Everything a learner holds.

    Attributes:
        policy: The policy, on the CPU or an accelerator; float32 except for weights frozen by LoRA.
        trainer: Counts and optimiser types.
        copied_files: Name -> bytes of the files that are copied unchanged.
        companions: Name -> the trained companions that there are already.
        optimiser_states: Model -> name -> tensor.
        adapter: Shape of the adapters of all models; None if all weights are trained.
        base_key: Key of the checkpoint that holds the adapters' base weights; None without adapters.
        base_files: Name -> bytes of the configuration files of the base's weights; empty without adapters.
        are_states_of_use: Whether the optimiser states fit the trained parameters. False if they are those of adapters
            and all weights are trained now, or the other way round.
    """

    policy: PreTrainedModel
    trainer: TrainerState = field(default_factory=TrainerState)
    copied_files: Mapping[str, bytes] = field(default_factory=dict)
    companions: dict[str, nn.Module] = field(default_factory=dict)
    optimiser_states: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    adapter: AdapterShape | None = None
    base_key: str | None = None
    base_files: Mapping[str, bytes] = field(default_factory=dict)
    are_states_of_use: bool = True

    @property
    def trained(self) -> dict[str, nn.Module]:
        """Name -> 'policy' and its companions."""
        return {"policy": self.policy, **self.companions}


def load_checkpoint(
    folder: str,
    lora: LoraConfig | None = None,
    *,
    key: str = "",
    frozen_dtype: torch.dtype = torch.float32,
    is_base_shared: bool = True,
    companions: Sequence[Companion] = (),
) -> Checkpoint:
    """Read a checkpoint for training; a plain policy folder counts as the checkpoint at step 0.

    Args:
        folder: Folder of the checkpoint; one with adapters must also hold its base's weights.
        lora: Train adapters, either those in the folder or new ones. None to train all weights, after merging the
            adapters in the folder, if any.
        key: The checkpoint's artifact key, which new adapters record as their base.
        frozen_dtype: Dtype of the weights frozen by LoRA.
        is_base_shared: Whether all models share the frozen weights.
        companions: Companions to read if the folder has them, beside the registered ones.

    Returns:
        The checkpoint, all on the CPU, with the policy in evaluation mode.

    Raises:
        PolicyError: If the folder is not a policy, its training state is damaged or of another model, or its adapter
            differs from what `lora` requests.
        LearnerError: If the policy lacks the layers that `lora` names, or new adapters are requested and the folder has
            a companion without adapters.
        MissingPackageError: If adapters are involved and PEFT is not installed.
    """
    path, stored = Path(folder), read_adapter(folder)
    beside = _stored_companions(path, companions)
    policy, _ = load_policy(folder, torch.float32 if lora is None else frozen_dtype, should_merge=False)
    copied_files = {
        file.name: file.read_bytes()
        for file in sorted(path.iterdir())
        if file.is_file() and file.suffix != ".safetensors" and file.name not in _MODEL_FILES
    }
    checkpoint = Checkpoint(policy, copied_files=copied_files)
    if lora is not None:
        checkpoint.adapter = shape_of(lora, policy.base_model)
        checkpoint.base_key = base_of(folder) or key
        checkpoint.base_files = {name: (path / name).read_bytes() for name in _BASE_FILES if (path / name).is_file()}
        if stored is not None:
            check_same_shape(stored.shape, checkpoint.adapter, folder)
        elif beside:
            raise LearnerError(
                f"'{folder}' has a {beside[0].in_words} with full weights, which update.lora would freeze and not "
                "store again. Start LoRA from a checkpoint without one (the run's first), or continue without "
                "update.lora"
            )
    shape = stored.shape if stored is not None else checkpoint.adapter
    if shape is not None:
        add_adapters(policy, shape, lora.seed if lora is not None else 0)
    try:
        if stored is not None:
            load_adapter_tensors(policy, {n.removeprefix(PREFIX): tensor for n, tensor in stored.tensors.items()})
        if (path / _TRAINER).is_file():
            # adapters that are merged below change the base weights, differently in each model
            _read_training_state(checkpoint, path, beside, is_base_shared and lora is not None)
    except (OSError, ValidationError, SafetensorError, RuntimeError, KeyError, ValueError) as error:
        raise PolicyError(
            f"the training state in '{folder}' is damaged or belongs to another model: {named_line(error)}. Copy the "
            f"checkpoint from the store again, or delete {_TRAINER} there to restart training from its policy"
        ) from error
    if stored is not None and lora is None:
        for model in checkpoint.trained.values():
            merge_adapters(model)
    checkpoint.are_states_of_use = (stored is None) == (lora is None)
    return checkpoint


def load_trained(
    folder: str, config: UpdateConfig, key: str, frozen_dtype: torch.dtype, *, is_cut_up: bool = False
) -> Checkpoint:
    """Read a checkpoint for an update, with the trained companions that the objective needs and no others.

    Args:
        folder: Folder of the checkpoint.
        config: The update's settings.
        key: The checkpoint's artifact key.
        frozen_dtype: Dtype of the weights frozen by LoRA.
        is_cut_up: Whether ZeRO 3 will shard the weights; models then share none.

    Raises:
        PolicyError, LearnerError, MissingPackageError: As in `load_checkpoint`.
    """
    trained = [companion for companion in companions_of(config) if companion.is_trained]
    checkpoint = load_checkpoint(
        folder, config.lora, key=key, frozen_dtype=frozen_dtype, is_base_shared=not is_cut_up, companions=trained
    )
    stored, policy = checkpoint.companions, checkpoint.policy
    checkpoint.companions = {
        one.name: stored[one.name] if one.name in stored else one.begin(policy, is_base_shared=not is_cut_up)
        for one in trained
    }
    if config.activation_checkpointing:
        from starpo.ragen.learning.learners.models.activations import checkpoint_activations

        for model in checkpoint.trained.values():
            checkpoint_activations(model, is_cut_up=is_cut_up)
    return checkpoint


def restore(models: Mapping[str, HasOptimiser], checkpoint: Checkpoint, folder: str) -> int:
    """Restore the optimiser states of models.

    Args:
        models: 'policy', and the trained companions by name.
        checkpoint: Holds the states.
        folder: Folder the checkpoint was read from, for messages.

    Returns:
        Number of optimisers that start afresh, because their type changed or other parameters are trained now.

    Raises:
        PolicyError: If a state names parameters that the model does not have.
    """
    num_restarted = 0
    for name, model in models.items():
        stored_type = checkpoint.trainer.optimisers.get(name)
        if stored_type is None:
            continue
        if stored_type != model.config.type or not checkpoint.are_states_of_use:
            num_restarted += 1
            continue
        try:
            model.load_state_tensors(checkpoint.optimiser_states[name])
        except KeyError as error:
            raise PolicyError(
                f"the state of the {name}'s optimiser in '{folder}' names {error}, which the {name} does not have; "
                "the files in that folder do not belong together. Copy the checkpoint from the store again"
            ) from error
    return num_restarted


def _file_of(companion: str) -> str:
    return f"{companion}.safetensors"


def _stored_companions(path: Path, others: Iterable[Companion]) -> list[Companion]:
    """Return the companions whose files are in a folder: registered ones, and those of others."""
    registered = [registered_companion(name) for name in COMPANIONS if (path / _file_of(name)).is_file()]
    return registered + [one for one in others if one.name not in COMPANIONS and (path / _file_of(one.name)).is_file()]


def _read_training_state(
    checkpoint: Checkpoint, path: Path, companions: Sequence[Companion], is_base_shared: bool
) -> None:
    trainer = TrainerState.model_validate_json((path / _TRAINER).read_bytes())
    states: dict[str, dict[str, Tensor]] = {model: {} for model in trainer.optimisers}
    for companion in companions:
        network = companion.begin(checkpoint.policy, is_base_shared=is_base_shared)
        load_adapter_tensors(network, load_file(path / _file_of(companion.name)))
        checkpoint.companions[companion.name] = network
    for name, tensor in load_file(path / _OPTIMISER).items():
        model, slot = name.split("/", 1)
        states[model][slot] = tensor
    checkpoint.trainer, checkpoint.optimiser_states = trainer, states


Weights = Mapping[str, Mapping[str, Tensor]]
"""Model -> parameter -> trained weights, float32."""


def save_checkpoint(checkpoint: Checkpoint, folder: str, weights: Weights | None = None) -> None:
    """Write a checkpoint into an empty folder; the same checkpoint gives the same bytes.

    Args:
        checkpoint: The checkpoint to write.
        folder: Local folder, empty or missing.
        weights: The weights, if the models are sharded.

    Raises:
        LearnerError: If the folder is not empty.
        OSError: If it cannot be written. If the disk is too full, nothing has been written.
    """
    training_state = _training_state(checkpoint, weights)
    _write_policy(checkpoint, folder, weights, training_state)
    for name, tensors in training_state.items():
        write_tensors(tensors, Path(folder, name))
    Path(folder, _TRAINER).write_bytes(_trainer_file(checkpoint))


def save_policy(checkpoint: Checkpoint, folder: str, weights: Weights | None = None) -> list[FileEntry]:
    """Write the policy of a checkpoint alone, which is what a player needs; the training state is only hashed.

    Args:
        checkpoint: As for `save_checkpoint`.
        folder: As for `save_checkpoint`.
        weights: As for `save_checkpoint`.

    Returns:
        The entries of all files that `save_checkpoint` would have written, sorted by name.

    Raises:
        LearnerError, OSError: As for `save_checkpoint`.
    """
    training_state, trainer = _training_state(checkpoint, weights), _trainer_file(checkpoint)
    with ThreadPoolExecutor(max_workers=1 + len(training_state)) as threads:  # hashing releases the GIL
        hashed = [threads.submit(entry_of_tensors, tensors, name) for name, tensors in training_state.items()]
        _write_policy(checkpoint, folder, weights, beside={})
        written = [FileEntry.of(file, file.name) for file in Path(folder).iterdir()]
        digest = hashlib.sha256(trainer).hexdigest()
        beside = FileEntry(name=_TRAINER, path=_TRAINER, sha256=digest, size_bytes=len(trainer))
        return sorted([*written, beside, *(entry.result() for entry in hashed)], key=lambda entry: entry.name)


def _write_policy(
    checkpoint: Checkpoint, folder: str, weights: Weights | None, beside: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Write the policy and the copied files into an empty folder; `beside`: what room is needed for in addition."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise LearnerError(f"'{folder}' is not empty; write a checkpoint to a new or empty folder")
    policy, of_policy = checkpoint.policy, None if weights is None else weights["policy"]
    whole = of_policy or policy.state_dict()
    trained = whole if checkpoint.adapter is None else adapter_tensors(policy, of_policy)
    _expect_room(path, [trained, *beside.values()])
    if checkpoint.adapter is None:
        with without_progress_bars():
            (policy if of_policy is None else _with_weights(policy, of_policy)).save_pretrained(path)
    else:
        assert checkpoint.base_key
        write_adapter(trained, checkpoint.adapter, checkpoint.base_key, path)
    for name, content in {**checkpoint.base_files, **checkpoint.copied_files}.items():
        (path / name).write_bytes(content)


def _training_state(checkpoint: Checkpoint, weights: Weights | None) -> dict[str, Mapping[str, Tensor]]:
    """Return file -> tensors of what training needs besides the policy: trained companions, optimisers."""
    files: dict[str, Mapping[str, Tensor]] = {
        _file_of(name): adapter_tensors(model, None if weights is None else weights[name])
        for name, model in checkpoint.companions.items()
    }
    files[_OPTIMISER] = {
        f"{model}/{slot}": tensor
        for model, tensors in checkpoint.optimiser_states.items()
        for slot, tensor in tensors.items()
    }
    return files


def _trainer_file(checkpoint: Checkpoint) -> bytes:
    return (checkpoint.trainer.model_dump_json(indent=2, exclude_none=True) + "\n").encode()


def _expect_room(path: Path, written: Iterable[Mapping[str, Tensor]]) -> None:
    """Check for free disk space; a lower bound, because it counts the tensors of each file only."""
    tensors = [{tensor.data_ptr(): tensor for tensor in file.values()} for file in written]  # tied ones count once
    needed = sum(tensor.nbytes for file in tensors for tensor in file.values())
    free = shutil.disk_usage(path).free
    if needed > free:
        raise OSError(
            errno.ENOSPC,
            f"a checkpoint needs at least {needed / 1e6:.1f} MB, but {free / 1e6:.1f} MB are free",
            str(path),
        )


def _with_weights(model: PreTrainedModel, weights: Mapping[str, Tensor]) -> PreTrainedModel:
    """Return a model of the same architecture with these weights, for saving."""
    with torch.device("meta"):
        whole: PreTrainedModel = type(model)(model.config)
    buffers = {name: buffer.detach().cpu() for name, buffer in model.named_buffers()}
    missing, strange = whole.load_state_dict({**buffers, **weights}, strict=False, assign=True)
    whole.tie_weights()
    left = [name for name, tensor in whole.state_dict().items() if tensor.is_meta]
    assert not left, f"no weights for {left} (missing {missing}, strange {strange})"
    whole.generation_config = model.generation_config
    return whole.float()
