"""Origin of the first checkpoint of a run."""

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from starpo.ragen.config.model_files import NUM_DIGITS, model_digest, model_place
from starpo.ragen.config.update import LoraConfig
from starpo.ragen.core.errors import PolicyError
from starpo.ragen.core.lookup import registered
from starpo.ragen.core.registry import DEMONSTRATORS
from starpo.ragen.core.settings import Settings


class TinyPolicy(Settings):
    """The embedded policy: created locally, then warm-started by imitating noisy demonstrations. No download."""

    type: Literal["tiny"] = "tiny"
    hidden_size: int = Field(128, ge=16, le=4096, multiple_of=8)
    """Width of the residual stream."""
    num_layers: int = Field(3, ge=1, le=64)
    """Number of transformer layers."""
    num_heads: int = Field(4, ge=1, le=64)
    """Number of attention heads; hidden_size must be a multiple of twice this number."""
    num_kv_heads: int = Field(2, ge=1, le=64)
    """Number of key-value heads; must divide num_heads."""
    intermediate_size: int = Field(320, ge=16, le=16384)
    """Width of the feed-forward layers."""
    max_positions: int = Field(2048, ge=64, le=131072)
    """Maximum context length in tokens."""
    patch_size: int | None = Field(None, ge=8, le=256, multiple_of=8)
    """Side length in pixels of the patches into which images are cut, each a token of the context; needed with
    `agent.observation = "image"` or "both". 32 is a tile of the built-in boards. None: the policy sees no images."""
    demonstrator: Annotated[str, *registered(DEMONSTRATORS)] | None = None
    """Demonstrator to imitate, `(environment, skill, rng) -> Demonstration`. None: the environment's own."""
    demonstration_turns: int = Field(30_000, ge=1)
    """Number of demonstrated turns to imitate; a larger number adds different turns, not repetitions."""
    demonstration_skill: float = Field(0.15, ge=0.0, le=1.0)
    """Probability that a demonstrated decision is the solver's; otherwise it is a random feasible one."""
    warm_start_steps: int = Field(550, ge=0)
    """Optimiser steps of supervised learning. 0: the weights stay random."""
    warm_start_batch_size: int = Field(32, ge=1)
    """Contexts per step: turns with `agent.context = "window"`, whole episodes with "full"."""
    matrix_learning_rate: float = Field(0.012, gt=0, le=1)
    """Peak learning rate of Muon, for the weight matrices; decays linearly to 5% after a warm-up of 20 steps."""
    learning_rate: float = Field(3e-3, gt=0, le=1)
    """Peak learning rate of AdamW, for all other weights; same schedule."""
    seed: int = Field(0, ge=0)
    """Seed of the weights and demonstrations; separate from the run's seed, so that runs share a warm start."""

    def check_sees(self, observation: str) -> None:
        """Check that the policy sees images exactly if prompts show them (`agent.observation`).

        Raises:
            ValueError: If not; the message says what to set.
        """
        if observation == "text" and self.patch_size is not None:
            raise ValueError(
                f"policy.patch_size = {self.patch_size} has no effect with agent.observation = 'text'; leave it out, "
                "or set agent.observation = 'image'"
            )
        if observation != "text" and self.patch_size is None:
            raise ValueError(
                f"agent.observation = '{observation}' shows images, and the policy sees none: set policy.patch_size "
                "(32: a tile of the built-in boards), or agent.observation = 'text'"
            )

    @model_validator(mode="after")
    def _sizes_fit_together(self) -> "TinyPolicy":
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size = {self.hidden_size} cannot be split into num_heads = {self.num_heads} heads of an even "
                f"width; choose a multiple of {2 * self.num_heads}"
            )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads = {self.num_kv_heads} must divide num_heads = {self.num_heads}")
        return self


_ROLLOUTS = r"^[A-Za-z0-9][A-Za-z0-9._-]*:\d+(-\d+)?$"


class FineTuning(Settings):
    """Supervised fine-tuning on the solver's play (RAGEN, App. C) or on stored episodes (rejection sampling)."""

    runs: list[Annotated[str, Field(pattern=_ROLLOUTS)]] = Field([])
    """Imitate stored episodes of these runs' iterations, such as ["RUN:10-40", "OTHER:0"]. Tokens are taken as they
    were sampled, so the policies must share a tokenizer; conversations of which text alone is known (imported, or
    recorded from a server of messages) are written by the policy's chat template. []: imitate the demonstrator."""
    episodes: Literal["successful", "kept", "all"] = "successful"
    """Which episodes of `runs`: 'successful', those of groups that the run's filter 'kept', or 'all', which those need
    whose source does not tell success. Episodes that begin in a state of an evaluation panel are left out."""
    min_return: float | None = None
    """Minimum return of an episode of `runs`. None: any."""
    demonstrator: Annotated[str, *registered(DEMONSTRATORS)] | None = None
    """Demonstrator to imitate, `(environment, skill, rng) -> Demonstration`. None: the environment's own."""
    demonstration_turns: int = Field(1000, ge=1)
    """Number of demonstrated turns to imitate; a larger number adds different turns, not repetitions."""
    demonstration_skill: float = Field(1.0, ge=0.0, le=1.0)
    """Probability that a demonstrated decision is the solver's; otherwise it is a random feasible one."""
    steps: int = Field(40, ge=1)
    """Optimiser steps."""
    batch_size: int = Field(128, ge=1)
    """Contexts per step: turns with `agent.context = "window"`, whole episodes with "full"."""
    learning_rate: float = Field(1e-4, gt=0, le=1)
    """Peak learning rate of AdamW; rises over the first 5% of the steps and then decays linearly to 5%."""
    matrix_learning_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    """Peak learning rate of Muon for the weight matrices, same schedule: for a policy that begins with random weights
    (0.02 for the one of `starpo record --new-policy`). None: all weights are AdamW's."""
    micro_batch_tokens: int = Field(8192, ge=16)
    """Tokens (padding included) per forward and backward pass; it affects gradients only by rounding."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the forward and backward pass; trained weights and optimiser states stay in float32."""
    lora: LoraConfig | None = None
    """Train adapters, which are merged into the weights at the end (the paper: rank 64, alpha 32). None: all weights
    are trained, in float32."""
    seed: int = Field(0, ge=0)
    """Seed of the demonstrations, and of the order of the batches."""

    @model_validator(mode="after")
    def _runs_are_given(self) -> "FineTuning":
        for text in self.runs:
            first, _, last = text.rpartition(":")[2].partition("-")
            if last and int(last) < int(first):
                raise ValueError(f"runs: '{text}' ends before it begins; write the smaller iteration first")
        if not self.runs and (self.min_return is not None or self.episodes != "successful"):
            raise ValueError("episodes and min_return choose among stored episodes: name their runs, or leave both out")
        return self


class PretrainedPolicy(Settings):
    """A causal language model: from the Hugging Face hub, a local folder, a GGUF file or an installed package."""

    type: Literal["pretrained"] = "pretrained"
    name_or_path: str = Field(min_length=1)
    """A folder with `config.json`, weights and a tokenizer; that of a LoRA adapter as PEFT saves it, which is applied
    to the base that it names; a GGUF file; `package:NAME` for the model that an installed Python package carries; or
    OWNER/NAME of a model on the Hugging Face hub."""
    revision: str | None = None
    """Commit or tag on the hub. None: the newest."""
    digest: str = Field("", pattern=f"^([0-9a-f]{{{NUM_DIGITS}}})?$")
    """Digest of the files of a local model, filled in from them, so that other weights at the same path are another
    policy. If it is given, files with another digest are rejected. "": a model on the hub."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Dtype of the weights in memory."""
    fine_tuning: FineTuning | None = None
    """Fine-tune the model by supervised learning before the first update; with `iterations = 0` the run ends there.
    None: no fine-tuning."""

    def check_sees(self, observation: str) -> None:
        """Check that stored episodes are not imitated on images; whether the model sees is known once it is loaded.

        Raises:
            ValueError: If they are.
        """
        if observation != "text" and self.fine_tuning is not None and self.fine_tuning.runs:
            raise ValueError(
                f"agent.observation = '{observation}' shows images, and policy.fine_tuning.runs imitates texts alone: "
                "leave runs out to imitate the demonstrator, or set agent.observation = 'text'"
            )

    @field_validator("digest")
    @classmethod
    def _of_the_model(cls, digest: str, info: ValidationInfo) -> str:
        name = info.data.get("name_or_path")
        try:
            place = None if digest or not name else model_place(name)
        except PolicyError:  # settings may name what another machine has; whoever loads it reports what is missing
            return digest
        return digest if place is None else model_digest(place)


PolicyConfig = Annotated[TinyPolicy | PretrainedPolicy, Field(discriminator="type")]
