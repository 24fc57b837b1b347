"""Documents on what settings need, and on whether they fit."""

from typing import Any

from starpo.flows.console.documents.document import JsonDocument
from starpo.ragen.sizing.architecture import Architecture
from starpo.ragen.sizing.device import Machine
from starpo.ragen.sizing.estimate import Memory
from starpo.ragen.sizing.memory import MemoryItem
from starpo.ragen.sizing.tokens import IterationTokens
from starpo.ragen.trial import Trial


class FirstEpisodes(JsonDocument):
    """Episodes that were played here (`--play`)."""

    policy: str
    """Who played."""
    trial: Trial
    """What they showed."""
    rollout_seconds: float
    """Of a whole run's rollouts and evaluations at this speed."""
    advice: list[str]
    """What to change before training, most urgent first."""


class Validation(JsonDocument):
    """Settings that are valid; invalid ones are an error."""

    settings: dict[str, Any]
    """What they resolve to; `--settings` prints this alone."""
    contexts: list[str]
    """Lengths of the prompts of each environment, and the limits; empty if the model is not on this machine."""
    notes: list[str]
    """Facts about template and examples."""
    warnings: list[str]
    """What is valid, and yet out of place."""
    episodes: FirstEpisodes | None
    """With --play."""


class Plan(JsonDocument):
    """What a run will need."""

    preset: str
    """Preset or file."""
    policy: str
    """Name of the policy."""
    parameters: int
    """Of the policy."""
    trained_parameters: dict[str, int]
    """Model -> parameters that an update changes."""
    architecture: Architecture
    """Sizes of the policy."""
    machine: Machine
    """Machine that it is planned for."""
    gpus_needed: int
    """0: the CPU."""
    peak_bytes: float
    """Memory of the phase that needs the most."""
    memory: Memory
    """By phase and part."""
    host_memory: list[MemoryItem]
    """Host memory beside GPUs."""
    tokens_an_iteration: IterationTokens
    """Trajectories and tokens."""
    seconds: dict[str, float] | None
    """Part of the run -> seconds, at the speed of a stored run (--speed-of); null without one."""
    iterations: int
    """Number of iterations."""
    storage_bytes: dict[str, int | float]
    """checkpoints, datasets: of the whole run; a_checkpoint; checkpoints_kept, a number."""
    fits: bool
    """Whether it fits."""
    reasons: list[str]
    """Why not."""
