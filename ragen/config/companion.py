"""`CompanionDeclaration`: what a companion declares of itself, readable without importing torch.

A companion is a model beside the policy that scores the response tokens of an update. An objective names those that it
needs (`ObjectiveConfig.needs`); nothing else decides which an update has.

    needs --declared_companions--> declarations --optimisers, passes, parameters--> settings, `starpo plan`
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from starpo.ragen.core.errors import RegistryError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import COMPANIONS

if TYPE_CHECKING:
    from starpo.ragen.config.update import LoraConfig, OptimiserConfig, UpdateConfig

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = frozenset({"policy", "optimiser", "model", "adapter_model"})
"""The policy, and files of a checkpoint."""


@dataclass(frozen=True)
class Passes:
    """Work of a companion in an update, in passes over its tokens.

    Attributes:
        scored: Forward passes before the policy's first step.
        trained_before: Forward and backward passes before the policy's first step.
        trained_beside: Forward and backward passes over each mini-batch, after the policy's step on it.
        are_certain: Whether there are as many whatever the data. If not, an update has no total to report before the
            policy's first step.
    """

    scored: int = 1
    trained_before: int = 0
    trained_beside: int = 0
    are_certain: bool = True


class Sizes(Protocol):
    """What the number of parameters of a companion follows from: `ragen.sizing.architecture.Architecture`."""

    @property
    def hidden_size(self) -> int:
        """Size of a hidden state."""

    @property
    def num_parameters(self) -> int:
        """Parameters of the policy."""

    @property
    def num_critic_parameters(self) -> int:
        """Parameters of the policy with a scalar head in place of its output layer."""

    def num_adapter_parameters(self, rank: int, targets: list[str] | None = None) -> int:
        """Parameters of LoRA adapters of the policy."""


class CompanionDeclaration:
    """What a companion is and what it costs; derive from `ragen.learning.learners.companion.Companion`.

    The module of a companion is imported to read settings, so it must not import torch at its top.
    """

    name: ClassVar[str]
    """Lower-case name: of its column, its file `<name>.safetensors` and its optimiser's state in checkpoints, its parts
    in `starpo plan`."""
    title: ClassVar[str] = ""
    """What messages call it; '' for its name."""
    passes: ClassVar[Passes] = Passes()
    """Its work in an update. It is trained, and stored in checkpoints, if it has passes with a backward pass."""
    is_recorded: ClassVar[bool] = False
    """Whether its column comes with the trajectories, made by a stage before the update, which holds no model of it."""
    is_first_checkpoint: ClassVar[bool] = False
    """Whether it needs the run's first checkpoint, which then is an input of updates."""

    @property
    def is_trained(self) -> bool:
        """Whether updates train it; otherwise it is frozen."""
        return self.passes.trained_before + self.passes.trained_beside > 0

    @property
    def in_words(self) -> str:
        """What messages call it."""
        return self.title or self.name

    def optimiser(self, config: "UpdateConfig") -> "OptimiserConfig":
        """Return the optimiser of a trained companion: by default that of the policy."""
        return config.optimiser

    def num_trained(self, sizes: Sizes, lora: "LoraConfig | None") -> int:
        """Return the number of parameters that an update trains: by default, of a policy."""
        return sizes.num_parameters if lora is None else sizes.num_adapter_parameters(lora.rank, lora.targets)

    def num_frozen(self, sizes: Sizes, lora: "LoraConfig | None") -> int:
        """Return the number of parameters of a frozen companion that are held for it alone, in float32.

        By default those of the policy; with LoRA none if it is the run's first checkpoint, since it is then the policy
        with its adapters disabled.
        """
        return 0 if lora is not None and self.is_first_checkpoint else sizes.num_parameters


def declared_companion(name: str) -> CompanionDeclaration:
    """Return the companion of this name, or that a `module:attribute` refers to.

    Raises:
        ConfigError: If there is no such name.
        RegistryError: If it cannot be imported, is no companion, or its name cannot be one.
    """
    declared = load(COMPANIONS, name)
    if not (isinstance(declared, type) and issubclass(declared, CompanionDeclaration)):
        raise RegistryError(
            f"'{name}' is no companion model; expected a class derived from "
            "starpo.ragen.learning.learners.companion.Companion (docs/extend.md)"
        )
    given = getattr(declared, "name", None)
    if not isinstance(given, str) or not _NAME.fullmatch(given) or given in _TAKEN:
        raise RegistryError(
            f"companion '{name}' has name = {given!r}; expected lower-case letters, digits and '_', and none of "
            f"{', '.join(sorted(_TAKEN))}"
        )
    if name in COMPANIONS and given != name:
        raise RegistryError(f"companion '{name}' has name = '{given}'; expected the name that it is registered under")
    return declared()


def declared_companions(needs: Iterable[str]) -> list[CompanionDeclaration]:
    """Return the companions among some requirements: registered ones in the registry's order, then the others.

    Raises:
        RegistryError: As in `declared_companion`, or if two have the same name.
    """
    words = set(needs)
    names = [name for name in COMPANIONS if name in words] + sorted(word for word in words if ":" in word)
    companions = [declared_companion(name) for name in names]
    for index, companion in enumerate(companions):
        if companion.name in {other.name for other in companions[:index]}:
            raise RegistryError(f"two companion models of the update have the name '{companion.name}'; rename one")
    return companions
