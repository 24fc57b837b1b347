"""The reference policy of KL divergences: the run's first checkpoint, frozen.

If the policy is a set of adapters on that checkpoint's weights, the reference is the policy with its adapters disabled
and costs no memory. Otherwise it is held in memory beside the policy.
"""

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.companion import Companion


class ReferencePolicy(Companion):
    """Its column: log-probs, nats."""

    name = "reference"
    title = "reference policy"
    is_first_checkpoint = True

    def folder(self, config: UpdateConfig, first_folder: str | None) -> str:
        """Return the folder of the run's first checkpoint."""
        if first_folder is None:
            raise LearnerError(
                f"update.kl_coefficient = {config.kl_coefficient} needs the reference policy, but none was given; "
                "give the folder of the run's first checkpoint, or set update.kl_coefficient = 0"
            )
        return first_folder
