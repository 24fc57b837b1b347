"""Checkpoints: a Hugging Face folder that also holds what training needs to go on as if it had never stopped.

    config.json, generation_config.json, model.safetensors    the policy, as `save_pretrained` writes it
    tokenizer files                                            passed on byte for byte
    critic.safetensors                                         where there is a critic
    optimiser.safetensors    `<policy|critic>/<adamw|muon>/<slot>/<parameter>`
    trainer.json             counts, and the type of the optimiser of each model

`transformers` loads the folder as it is. Nothing is pickled. There is no state of a random generator: every draw of an
update is a function of the update's own seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from ragen.errors import LearnerError, PolicyError
from ragen.learn.critic import Critic
from ragen.policy.load import load_policy, without_progress_bars
from ragen.settings import Settings

_CRITIC = "critic.safetensors"
_OPTIMISER = "optimiser.safetensors"
_TRAINER = "trainer.json"
_MODEL_FILES = ("config.json", "generation_config.json", "model.safetensors.index.json", _TRAINER, "manifest.json")


class TrainerState(Settings):
    """`trainer.json`. A policy folder without one is a checkpoint before the first update."""

    format_version: int = 1
    """Of this file."""
    num_updates: int = 0
    """Updates made since the policy began to be trained."""
    num_steps: int = 0
    """Optimiser steps of the policy in them."""
    optimisers: dict[str, str] = Field(default_factory=dict)
    """Model ('policy', 'critic') -> type of the optimiser that its state in optimiser.safetensors belongs to."""


@dataclass
class Checkpoint:
    """Everything a learner holds.

    Attributes:
        policy: On the CPU or an accelerator; float32.
        trainer: Counts.
        companions: Name -> bytes of the files that are passed on as they are.
        critic: None: there is none yet.
        optimiser_states: Model -> name -> tensor.
    """

    policy: PreTrainedModel
    trainer: TrainerState = field(default_factory=TrainerState)
    companions: Mapping[str, bytes] = field(default_factory=dict)
    critic: Critic | None = None
    optimiser_states: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)


def load_checkpoint(folder: str) -> Checkpoint:
    """Read a checkpoint, or a plain policy folder as the checkpoint at step 0.

    Returns:
        All on the CPU, the policy in float32 and in evaluation mode.

    Raises:
        PolicyError: If the folder is not a policy, or its training state is damaged or of another model.
    """
    policy, _ = load_policy(folder, torch.float32)
    path = Path(folder)
    companions = {
        file.name: file.read_bytes()
        for file in sorted(path.iterdir())
        if file.is_file() and file.suffix != ".safetensors" and file.name not in _MODEL_FILES
    }
    if not (path / _TRAINER).is_file():
        return Checkpoint(policy, companions=companions)
    critic = None
    try:
        trainer = TrainerState.model_validate_json((path / _TRAINER).read_bytes())
        states: dict[str, dict[str, Tensor]] = {model: {} for model in trainer.optimisers}
        if (path / _CRITIC).is_file():
            critic = Critic.from_policy(policy)
            critic.load_state_dict(load_file(path / _CRITIC))
        for name, tensor in load_file(path / _OPTIMISER).items():
            model, slot = name.split("/", 1)
            states[model][slot] = tensor
    except (OSError, ValidationError, SafetensorError, RuntimeError, KeyError, ValueError) as error:
        raise PolicyError(
            f"the training state in '{folder}' is damaged or belongs to another model: {_first_line(error)}. Take the "
            f"checkpoint from the store again, or delete {_TRAINER} there to start training anew from its policy"
        ) from error
    return Checkpoint(policy, trainer, companions, critic, states)


def save_checkpoint(checkpoint: Checkpoint, folder: str) -> None:
    """Write a checkpoint into an empty folder; the same checkpoint gives the same bytes.

    Raises:
        LearnerError: If there is something in the folder already.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise LearnerError(f"'{folder}' is not empty; a checkpoint is written into a folder of its own")
    with without_progress_bars():
        checkpoint.policy.save_pretrained(path)
    for name, content in checkpoint.companions.items():
        (path / name).write_bytes(content)
    if checkpoint.critic is not None:
        save_file(_contiguous(checkpoint.critic.state_dict()), path / _CRITIC)
    states = {
        f"{model}/{slot}": tensor
        for model, tensors in checkpoint.optimiser_states.items()
        for slot, tensor in tensors.items()
    }
    save_file(_contiguous(states), path / _OPTIMISER)
    (path / _TRAINER).write_text(checkpoint.trainer.model_dump_json(indent=2) + "\n")


def _contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
