"""What is looked for in a run beside its success."""

from typing import Literal

from pydantic import Field, model_validator

from starpo.ragen.config.schedule import Changes
from starpo.ragen.core.settings import Settings


class DiagnosticsConfig(Settings):
    """Probes of the policy, and what is done about a collapse."""

    probe_every: int = Field(0, ge=0)
    """Cross-score reasoning and prompts at every n-th iteration, which tells template collapse. 0: never."""
    probe_rows: int = Field(64, ge=2, le=1024)
    """Turns whose reasoning is scored under each other's prompts; the cost grows with the square."""
    gradients_every: int = Field(0, ge=0)
    """Measure the gradient of every group at every n-th iteration, term by term of the loss, in six buckets of reward
    std: which groups carry a signal. Costs about three updates on all groups. 0: never."""
    on_collapse: Literal["log", "stop", "roll_back"] = "log"
    """'stop': the run ends once it is as bad as `alarm`. 'roll_back': it goes on as a fork from the iteration at
    which it did best while it was healthy, with the first of `remedies`; once none is left, it stops."""
    alarm: Literal["collapsing", "collapsed"] = "collapsed"
    """The verdict at which that is done: while two signals warn at once, or when what was learned is lost."""
    remedies: list[Changes] = Field([])
    """Settings to go on with, one table for each time, such as `[{ "update.kl_coefficient" = 0.05 }]`."""

    @model_validator(mode="after")
    def _has_remedies(self) -> "DiagnosticsConfig":
        if self.on_collapse != "roll_back" and self.remedies:
            raise ValueError("diagnostics.remedies have no effect unless diagnostics.on_collapse = 'roll_back'")
        return self
