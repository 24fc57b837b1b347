"""Measurements of a run beyond its success."""

from typing import Literal

from pydantic import Field, model_validator

from starpo.ragen.config.schedule import Changes
from starpo.ragen.core.settings import Settings


class DiagnosticsConfig(Settings):
    """Probes of the policy, and the response to a collapse."""

    probe_every: int = Field(0, ge=0)
    """Cross-score reasoning and prompts at every n-th iteration, which detects template collapse. 0: never."""
    probe_rows: int = Field(64, ge=2, le=1024)
    """Turns whose reasoning is scored under each other's prompts; the cost grows quadratically."""
    gradients_every: int = Field(0, ge=0)
    """At every n-th iteration, measure the gradient of every group, separately for each term of the loss and in six
    buckets of reward std: it shows which groups carry a signal. Costs about as much as three updates on all groups. 0:
    never."""
    should_store_tokens: bool = False
    """Store what each update noted of every token: advantage, ratio, clipping, entropy (dataset `trained_tokens`), by
    which `starpo view` shades them. Results and keys are the same."""
    on_collapse: Literal["log", "stop", "roll_back"] = "log"
    """'log': only report. 'stop': end the run at the verdict `alarm`. 'roll_back': continue as a fork from the best
    iteration of the healthy phase, with the first of `remedies` not yet used; once none is left, stop."""
    alarm: Literal["collapsing", "collapsed"] = "collapsed"
    """Verdict that triggers `on_collapse`: 'collapsing' while two signals warn at once, or 'collapsed' once what was
    learned is lost."""
    remedies: list[Changes] = Field([])
    """Settings to continue with after a roll-back, one table per roll-back, such as `[{ "update.kl_coefficient" = 0.05
    }]`."""

    @model_validator(mode="after")
    def _has_remedies(self) -> "DiagnosticsConfig":
        if self.on_collapse != "roll_back" and self.remedies:
            raise ValueError("diagnostics.remedies have no effect unless diagnostics.on_collapse = 'roll_back'")
        return self
