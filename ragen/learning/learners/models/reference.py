"""The reference policy of KL divergences: the run's first checkpoint.

If the policy is a set of adapters on that checkpoint's weights, the reference is the policy with its adapters disabled
and costs no memory. Otherwise it is held in memory beside the policy, frozen.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from transformers import PreTrainedModel

from starpo.ragen.agents.policy.adapter import read_shape
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.models.adapters import adapters_off
from starpo.ragen.learning.learners.models.scoring import Scorer


class Reference:
    """Reference policy of a learner."""

    def __init__(self, config: UpdateConfig, load: Callable[[str], Scorer]) -> None:
        """Create an empty holder; `load` loads the policy.

        Args:
            config: The update's settings: whether a reference is needed, and whether adapters are trained.
            load: Loads a frozen policy from a folder.
        """
        self._config = config
        self._load = load
        self._folder: str | None = None
        self._own: Scorer | None = None

    def load(self, folder: str | None, policy_folder: str | None) -> None:
        """Load this folder's policy as the reference; a no-op if no reference is needed.

        Args:
            folder: Folder of the run's first checkpoint.
            policy_folder: Folder of the policy about to be trained; None if the trained policy stays the same.

        Raises:
            LearnerError: If a reference is needed and `folder` is None.
            PolicyError: If the folder is not a policy.
        """
        coefficient = self._config.kl_coefficient
        if coefficient == 0:
            return
        if folder is None:
            raise LearnerError(
                f"update.kl_coefficient = {coefficient} needs the reference policy, but none was given; "
                "give the folder of the run's first checkpoint, or set update.kl_coefficient = 0"
            )
        is_loaded = folder == self._folder and (self._own is not None or policy_folder is None)
        if is_loaded:
            return
        is_lent = self._config.lora is not None and policy_folder is not None and _is_base(folder, policy_folder)
        self._own = None if is_lent else self._load(folder)
        self._folder = folder

    def opener(self, policy: PreTrainedModel, scorer: Scorer) -> Callable[[], AbstractContextManager[Scorer]] | None:
        """Return a function that opens the reference (`ragen.learning.learners.update.OpenReference`).

        Args:
            policy: The policy that is trained.
            scorer: The same policy as a scorer.

        Returns:
            None if no reference is needed.
        """
        if self._config.kl_coefficient == 0:
            return None
        own = self._own

        @contextmanager
        def lent() -> Iterator[Scorer]:
            with adapters_off(policy):
                yield scorer

        return lent if own is None else lambda: nullcontext(own)


def _is_base(folder: str, policy_folder: str) -> bool:
    """Whether a folder without an adapter holds the same weight files as the base of a policy's adapters."""
    one, other = ({file.resolve() for file in Path(f).glob("model*.safetensors")} for f in (folder, policy_folder))
    return bool(one) and one == other and read_shape(folder) is None
