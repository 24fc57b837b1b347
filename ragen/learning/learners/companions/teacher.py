"""The teacher of on-policy distillation: its log-probs were stored by a stage before the update (`tasks.teacher`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starpo.ragen.config.companion import Passes
from starpo.ragen.learning.learners.companion import Column, Companion

if TYPE_CHECKING:
    from starpo.ragen.learning.learners.data.batches import MicroBatch
    from starpo.ragen.learning.learners.models.scoring import Scores
    from starpo.ragen.learning.learners.models.trained_model import TrainedModel
    from starpo.ragen.learning.learners.update_inputs import UpdateInputs


class Teacher(Companion):
    """Its column: log-probs, nats, as they come with the trajectories."""

    name = "teacher"
    passes = Passes(scored=0)
    is_recorded = True

    def score(
        self, inputs: "UpdateInputs", model: "TrainedModel", old: "Scores", batches: "Sequence[MicroBatch]"
    ) -> Column:
        """Return the log-probs of all response tokens, and the reverse KL to the teacher before the update."""
        from starpo.ragen.learning.learners.data.taught import teacher_logprobs

        logprobs_N = teacher_logprobs(inputs.trajectories)
        return logprobs_N, {"update/teacher_kl": float((old.logprobs_N.double() - logprobs_N.double()).mean())}
