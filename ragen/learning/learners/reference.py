"""The reference policy, which KL divergences are measured to: the run's first checkpoint.

Where a policy is adapters on that checkpoint's weights, it is the policy itself with its adapters off, and costs no
memory. Otherwise it is kept beside the policy, frozen.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from transformers import PreTrainedModel

from starpo.ragen.agents.policy.adapter import read_shape
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.adapters import adapters_off
from starpo.ragen.learning.learners.scoring import Scorer


class Reference:
    """A learner's reference policy."""

    def __init__(self, config: UpdateConfig, load: Callable[[str], Scorer]) -> None:
        """Hold nothing yet.

        Args:
            config: Is one needed, and are adapters trained?
            load: Loads a frozen policy from a folder.
        """
        self._config = config
        self._load = load
        self._folder: str | None = None
        self._own: Scorer | None = None

    def be_at(self, folder: str | None, policy_folder: str | None) -> None:
        """Be this folder's policy, where one is needed at all.

        Args:
            folder: Of the run's first checkpoint.
            policy_folder: Of the policy that is about to be trained; None: the one that was before.

        Raises:
            LearnerError: If a reference is needed and none is given.
            PolicyError: If the folder is not a policy.
        """
        coefficient = self._config.kl_coefficient
        if coefficient == 0:
            return
        if folder is None:
            raise LearnerError(
                f"update.kl_coefficient = {coefficient} needs the reference policy, and none was given; "
                "give the folder of the run's first checkpoint, or set update.kl_coefficient = 0"
            )
        is_loaded = folder == self._folder and (self._own is not None or policy_folder is None)
        if is_loaded:
            return
        is_lent = self._config.lora is not None and policy_folder is not None and _is_base(folder, policy_folder)
        self._own = None if is_lent else self._load(folder)
        self._folder = folder

    def opener(self, policy: PreTrainedModel, scorer: Scorer) -> Callable[[], AbstractContextManager[Scorer]] | None:
        """How to open it (see `ragen.learning.learners.update.OpenReference`); None: none is needed.

        Args:
            policy: That is trained.
            scorer: The policy.
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
    """Are the weights in a folder, which has no adapter, the very files that a policy's adapters stand on?"""
    one, other = ({file.resolve() for file in Path(f).glob("model*.safetensors")} for f in (folder, policy_folder))
    return bool(one) and one == other and read_shape(folder) is None
