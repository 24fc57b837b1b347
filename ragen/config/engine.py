"""`EngineConfig`: what an engine declares of itself, readable without importing it or its packages."""

import sys
from dataclasses import dataclass
from typing import Any, ClassVar

from starpo.ragen.core.settings import Settings


@dataclass(frozen=True)
class Merging:
    """How shards are merged for an engine that batches all requests in flight.

    Attributes:
        num_episodes: Largest number of episodes of a merged shard; an episode has up to 40 kB while it is in play.
        num_at_once: Merged shards in play at a time in one process.
    """

    num_episodes: int = 2048
    num_at_once: int = 1


class EngineConfig(Settings):
    """An engine's own settings, the table `rollout.NAME`, and what follows from them. The defaults are those of
    'torch'."""

    plays_checkpoint: ClassVar[bool] = True
    """Whether the checkpoint responds. If a server's model or the environment's demonstrator does instead, no weights
    are loaded, log-probs are unknown, and the engine serves evaluation only."""
    needs_process_on_cpu: ClassVar[bool] = False
    """Whether it only works in a process of its own where there is no GPU."""

    accepts_images: ClassVar[bool] = True
    """Whether requests may contain images (`agent.observation`)."""
    runs_tiny_vision: ClassVar[bool] = True
    """Whether it runs the embedded policy that sees images, an architecture of our own."""

    @property
    def gives_tokens(self) -> bool:
        """Whether a response comes as its tokens. Otherwise it comes as text, which is tokenised here."""
        return self.plays_checkpoint

    @property
    def copies(self) -> tuple[int, int]:
        """Number of copies of the model, each in its own process, and number of GPUs of each."""
        return 1, 1

    @property
    def panel_merging(self) -> Merging:
        """How the shards of an evaluation are merged. Of an interrupted one, those in play are played again."""
        return Merging()

    def python(self) -> str:
        """Return the interpreter that has the engine.

        Raises:
            MissingPackageError: If there is none.
        """
        return sys.executable

    def arguments(self, max_context_tokens: int) -> dict[str, Any]:
        """Return keyword arguments of the engine's class besides `num_threads`, as JSON.

        Raises:
            ValueError: If the settings do not suffice for this engine.
        """
        return self.model_dump(mode="json")

    def reserved(self, weights: float, context: float, gpu: float | None) -> tuple[float, str] | None:
        """Return the memory that a copy reserves, on each GPU or on the CPU.

        Args:
            weights: Bytes of the model's weights in float32.
            context: Bytes of keys and values of the longest context in float32.
            gpu: Bytes of a GPU; None on the CPU.

        Returns:
            Bytes, and their derivation. None: as much as the weights, and the keys and values of shards being played.
        """
        return None
