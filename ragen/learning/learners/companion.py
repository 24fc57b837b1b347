"""`Companion`: a model beside the policy that scores the response tokens of an update.

    checkpoint or folder -> model -> score: a column -> credit, losses
                              ^--- loss, step beside the policy (the critic); a step before it (a process reward model)

One class in one file says everything about a companion; learners, checkpoints, measurements and `starpo plan` ask it.
It is imported to read settings, so what needs torch is imported inside its methods.
Legend: N response tokens of the update.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from starpo.ragen.config.companion import CompanionDeclaration, declared_companion
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedModel

    from starpo.ragen.learning.learners.credit import Credit
    from starpo.ragen.learning.learners.data.batches import MicroBatch
    from starpo.ragen.learning.learners.models.scoring import Scores
    from starpo.ragen.learning.learners.models.trained_model import TrainedModel
    from starpo.ragen.learning.learners.update_inputs import UpdateInputs

Column = tuple["Tensor", Mapping[str, float]]
"""A number for each response token, [N] on the CPU, and metrics of how it came about."""


class CompanionLoss(Protocol):
    """Loss of a companion over a mini-batch, a micro-batch at a time."""

    @property
    def weights_N(self) -> "Tensor":  # noqa: N802
        """Weight of each token in the loss; if all are 0, no step is taken."""

    def __call__(self, batch: "MicroBatch") -> "tuple[Tensor, Tensor]":
        """Compute the loss of a micro-batch, to differentiate and to report."""

    def check(self) -> None:
        """Check the micro-batches computed so far; raise LearnerError if a loss is not finite."""


class Companion(CompanionDeclaration):
    """What a learner does with a companion; every method is called by all ranks.

    The smallest companion is frozen: a name, and a folder. A trained one has `begin`, and takes its steps in `score`
    (`passes.trained_before`) or by `loss` (`passes.trained_beside`).
    """

    loss_name: str = ""
    """Name of its loss in metrics, `update/<loss_name>`; '' for its own name with `_loss`."""

    def begin(self, policy: "PreTrainedModel", *, is_base_shared: bool) -> "nn.Module":
        """Return a trained companion at its start, in evaluation mode.

        Args:
            policy: The policy of the checkpoint; its adapters, if any, are trained in the companion too.
            is_base_shared: Share the weights frozen by adapters with the policy instead of copying them.

        Returns:
            A causal language model, whose log-probs learners compute (`ResponseScores`), or a module that is called
            with micro-batches itself.
        """
        raise LearnerError(
            f"the {self.in_words} is trained and does not say how it begins: give its class a method begin "
            "(docs/extend.md)"
        )

    def folder(self, config: UpdateConfig, first_folder: str | None) -> str:
        """Return the folder of a frozen companion, a policy: by default that of the run's first checkpoint.

        Raises:
            LearnerError: If it is not there.
        """
        if first_folder is None:
            raise LearnerError(
                f"update.advantage = '{config.advantage}' needs the {self.in_words}, but none was given; give the "
                "folder of the run's first checkpoint"
            )
        return first_folder

    def score(
        self, inputs: "UpdateInputs", model: "TrainedModel", old: "Scores", batches: "Sequence[MicroBatch]"
    ) -> Column:
        """Give every response token a number, before the policy's first step: by default its log-prob, nats.

        Args:
            inputs: The update.
            model: The companion; a frozen one is only called.
            old: Scores under the policy before its first step.
            batches: This process's micro-batches; those of all ranks together hold every token once.

        Raises:
            LearnerError: If a number is not finite.
        """
        return inputs.score(model, batches).logprobs_N, {}

    def variant(self, config: UpdateConfig) -> object:
        """Return the settings that its column depends on; objectives that agree in them are measured with one."""
        return None

    def loss(
        self, inputs: "UpdateInputs", model: "TrainedModel", column_N: "Tensor", credit: "Credit", is_in_N: "Tensor"
    ) -> CompanionLoss:
        """Return its loss over a mini-batch (`passes.trained_beside`).

        Args:
            inputs: The update.
            model: The companion.
            column_N: What `score` returned.
            credit: Advantages and value targets.
            is_in_N: Tokens of the mini-batch. bool, on the CPU
        """
        raise LearnerError(f"the {self.in_words} is trained beside the policy and has no loss (docs/extend.md)")

    def is_alone(self, config: UpdateConfig, iteration: int) -> bool:
        """Whether it is trained and the policy is not, in this iteration."""
        return False

    def review(self, column_N: "Tensor", credit: "Credit") -> Mapping[str, float]:
        """Return metrics of its column, after all steps."""
        return {}


def companions_of(config: UpdateConfig) -> list[Companion]:
    """Return the companions of an update, in a fixed order.

    Raises:
        LearnerError: If one only declares itself.
    """
    return [_complete(companion) for companion in config.companions]


def registered_companion(name: str) -> Companion:
    """Return a companion of the registry.

    Raises:
        RegistryError: As in `declared_companion`.
        LearnerError: If it only declares itself.
    """
    return _complete(declared_companion(name))


def _complete(companion: CompanionDeclaration) -> Companion:
    if not isinstance(companion, Companion):
        raise LearnerError(
            f"{type(companion).__name__} declares a companion model and is none: derive it from "
            "starpo.ragen.learning.learners.companion.Companion"
        )
    return companion
