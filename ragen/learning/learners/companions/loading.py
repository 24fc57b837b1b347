"""`CompanionModels`: the frozen companions of a learner, loaded or lent, and with them all of an update's.

    first checkpoint, checkpoint --load--> frozen models; trained models --loaded--> companions of an update

A frozen companion whose weights are those below the policy's adapters is lent: it is the policy with its adapters
disabled.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel

from starpo.ragen.agents.policy.adapter import read_shape
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.companion import Companion, companions_of
from starpo.ragen.learning.learners.models.adapters import adapters_off
from starpo.ragen.learning.learners.models.scoring import Scorer
from starpo.ragen.learning.learners.models.trained_model import TrainedModel
from starpo.ragen.learning.learners.update_inputs import LoadedCompanion


@dataclass(frozen=True)
class _Frozen:
    """A frozen companion: its folder, and its model unless the policy is lent."""

    folder: str
    model: Scorer | None


class CompanionModels:
    """Companions of a learner."""

    def __init__(self, config: UpdateConfig, load: Callable[[str], Scorer]) -> None:
        """Create an empty holder; `load` loads the policy.

        Args:
            config: The update's settings: which companions are needed, and whether adapters are trained.
            load: Loads a frozen policy from a folder.
        """
        self._config = config
        self._companions = {companion.name: companion for companion in companions_of(config)}
        self._load = load
        self._frozen: dict[str, _Frozen] = {}

    def load(self, first_folder: str | None, policy_folder: str | None) -> None:
        """Load the frozen companions.

        Args:
            first_folder: Folder of the run's first checkpoint.
            policy_folder: Folder of the policy about to be trained; None if the trained policy stays the same.

        Raises:
            LearnerError: If the folder of one is not there.
            PolicyError: If it is not a policy.
        """
        for name, companion in self._companions.items():
            if not (companion.is_trained or companion.is_recorded):
                self._load_frozen(name, companion.folder(self._config, first_folder), policy_folder)

    def loaded(
        self, policy: PreTrainedModel, scorer: Scorer, trained: Mapping[str, TrainedModel]
    ) -> dict[str, LoadedCompanion]:
        """Return the companions of an update.

        Args:
            policy: The policy that is trained.
            scorer: The same policy as a scorer.
            trained: Name -> the trained companions, at least.
        """
        return {
            name: LoadedCompanion.of_trained(companion, trained[name])
            if companion.is_trained
            else self._opened(companion, policy, scorer)
            for name, companion in self._companions.items()
        }

    def _load_frozen(self, name: str, folder: str, policy_folder: str | None) -> None:
        before = self._frozen.get(name)
        if before is not None and folder == before.folder and (before.model is not None or policy_folder is None):
            return
        is_lent = self._config.lora is not None and policy_folder is not None and _is_base(folder, policy_folder)
        self._frozen[name] = _Frozen(folder, None if is_lent else self._load(folder))

    def _opened(self, companion: Companion, policy: PreTrainedModel, scorer: Scorer) -> LoadedCompanion:
        if companion.is_recorded:
            return LoadedCompanion(companion, nullcontext)
        model = self._frozen[companion.name].model
        if model is not None:
            return LoadedCompanion(companion, lambda: nullcontext(model))

        @contextmanager
        def lent() -> Iterator[Scorer]:
            with adapters_off(policy):
                yield scorer

        return LoadedCompanion(companion, lent)


def _is_base(folder: str, policy_folder: str) -> bool:
    """Whether a folder without an adapter holds the same weight files as the base of a policy's adapters."""
    one, other = ({file.resolve() for file in Path(f).glob("model*.safetensors")} for f in (folder, policy_folder))
    return bool(one) and one == other and read_shape(folder) is None
