"""Where the first checkpoint of a run comes from."""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from starpo.ragen.config.update import LoraConfig
from starpo.ragen.core.lookup import registered
from starpo.ragen.core.registry import DEMONSTRATORS
from starpo.ragen.core.settings import Settings

_FILES = ("*.json", "*.jinja", "*.txt", "tokenizer.model", "model*.safetensors", "adapter_model.safetensors")
"""Of a policy's folder, what a policy or its tokenizer may be read from."""
_DIGITS = 16


def folder_digest(folder: Path) -> str:
    """16 hexadecimal digits of the names and bytes of the files that a policy is read from.

    Raises:
        ValueError: If one cannot be read.
    """
    files = sorted({file for pattern in _FILES for file in folder.glob(pattern) if file.is_file()})
    try:
        told = [f"{file.name} {_file_digest(file, (at := file.stat()).st_size, at.st_mtime_ns)}" for file in files]
    except OSError as error:
        raise ValueError(f"{error.filename} cannot be read ({error.strerror})") from error
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:_DIGITS]


@lru_cache(maxsize=64)
def _file_digest(file: Path, size: int, changed_ns: int) -> str:
    """Of its bytes; read once for as long as size and time of change are what they were."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


class TinyPolicy(Settings):
    """The embedded policy: made locally, then warm-started by imitating noisy demonstrations. No download."""

    type: Literal["tiny"] = "tiny"
    hidden_size: int = Field(128, ge=16, le=4096, multiple_of=8)
    """Width of the residual stream."""
    num_layers: int = Field(3, ge=1, le=64)
    """Transformer layers."""
    num_heads: int = Field(4, ge=1, le=64)
    """Attention heads; hidden_size is a multiple of twice their number."""
    num_kv_heads: int = Field(2, ge=1, le=64)
    """Key-value heads; divides num_heads."""
    intermediate_size: int = Field(320, ge=16, le=16384)
    """Width of the feed-forward layers."""
    max_positions: int = Field(2048, ge=64, le=131072)
    """Longest context in tokens."""
    demonstrator: Annotated[str, *registered(DEMONSTRATORS)] | None = None
    """Who is imitated: `(environment, skill, rng) -> Demonstration`. None: the environment's own demonstrator."""
    demonstration_turns: int = Field(30_000, ge=1)
    """Demonstrated turns to imitate; more are different turns, not repetitions."""
    demonstration_skill: float = Field(0.15, ge=0.0, le=1.0)
    """Probability that a demonstrated decision is the solver's; otherwise it is a random feasible one."""
    warm_start_steps: int = Field(550, ge=0)
    """Optimiser steps of supervised learning. 0 leaves the weights random."""
    warm_start_batch_size: int = Field(32, ge=1)
    """Demonstrated turns a step."""
    matrix_learning_rate: float = Field(0.012, gt=0, le=1)
    """Peak learning rate of Muon, for the weight matrices; falls linearly to 5% after a warm-up of 20 steps."""
    learning_rate: float = Field(3e-3, gt=0, le=1)
    """Peak learning rate of AdamW, for everything else; same schedule."""
    seed: int = Field(0, ge=0)
    """Seed of the weights and of the demonstrations: kept apart from the run's, so that runs share a warm start."""

    @model_validator(mode="after")
    def _sizes_fit_together(self) -> "TinyPolicy":
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size = {self.hidden_size} cannot be cut into num_heads = {self.num_heads} heads of an even "
                f"width; choose a multiple of {2 * self.num_heads}"
            )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads = {self.num_kv_heads} must divide num_heads = {self.num_heads}")
        return self


class FineTuning(Settings):
    """Supervised fine-tuning on the solver's play, to begin with or to compare with (RAGEN, App. C)."""

    demonstrator: Annotated[str, *registered(DEMONSTRATORS)] | None = None
    """Who is imitated: `(environment, skill, rng) -> Demonstration`. None: the environment's own demonstrator."""
    demonstration_turns: int = Field(1000, ge=1)
    """Demonstrated turns to imitate; more are different turns, not repetitions."""
    demonstration_skill: float = Field(1.0, ge=0.0, le=1.0)
    """Probability that a demonstrated decision is the solver's; otherwise it is a random feasible one."""
    steps: int = Field(40, ge=1)
    """Optimiser steps."""
    batch_size: int = Field(128, ge=1)
    """Demonstrated turns a step."""
    learning_rate: float = Field(1e-4, gt=0, le=1)
    """Peak learning rate of AdamW; rises over the first twentieth of the steps and falls linearly to 5%."""
    lora: LoraConfig | None = None
    """Train adapters, which are merged into the weights in the end (the paper: rank 64, alpha 32). None: all weights
    are trained, in float32."""
    seed: int = Field(0, ge=0)
    """Seed of the demonstrations."""


class PretrainedPolicy(Settings):
    """A Hugging Face causal language model, by local folder or by name."""

    type: Literal["pretrained"] = "pretrained"
    name_or_path: str = Field(min_length=1)
    """A folder with `config.json`, weights and a tokenizer, or a model name for the Hugging Face hub."""
    revision: str | None = None
    """Commit or tag on the hub. None is the newest."""
    digest: str = Field("", pattern=f"^([0-9a-f]{{{_DIGITS}}})?$", exclude_if=lambda digest: not digest)
    """Of the files in a local folder, filled in from them, so that other weights in its place are another policy. Where
    it is given, other files are refused. "": a model of the hub."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights in memory."""
    fine_tuning: FineTuning | None = None
    """Fine-tune it on demonstrations before the first update; `iterations = 0` then ends the run. None: take it as it
    is."""

    @field_validator("digest")
    @classmethod
    def _of_the_folder(cls, digest: str, info: ValidationInfo) -> str:
        name = info.data.get("name_or_path")
        folder = Path(name).expanduser() if name else None
        return folder_digest(folder) if folder and not digest and folder.is_dir() else digest


PolicyConfig = Annotated[TinyPolicy | PretrainedPolicy, Field(discriminator="type")]
