"""Which groups are trained on (RAGEN, objectives; RAGEN-2)."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from starpo.ragen.core.lookup import checked_options, registered
from starpo.ragen.core.registry import FILTERS
from starpo.ragen.core.settings import Settings


class FilterConfig(Settings):
    """Scores groups, ranks them, keeps some."""

    strategy: Annotated[str, *registered(FILTERS)] = "top_fraction"
    """'none' keeps all; 'top_fraction' a share `keep` of all groups; 'top_k' a number `keep_count`; 'top_p_linear' and
    'top_p_softmax' the best groups that hold a share `keep` of the total score; 'min_p' those whose score is at least
    `keep` times the best one's."""
    keep: float = Field(0.25, gt=0.0, le=1.0)
    """The share that the strategy speaks of. Ignored by 'none' and 'top_k'."""
    keep_count: int | None = Field(None, ge=1)
    """Groups kept by 'top_k'; needed there, and rejected elsewhere by the strategy."""
    scope: Literal["batch", "environment"] = Field("batch", exclude_if=lambda scope: scope == "batch")
    """Of a mixture: 'batch' compares all groups of a rollout, so that the part whose returns vary most may fill the
    update; 'environment' applies the strategy to the groups of each part by themselves (RAGEN-2's 'inductive'):
    `keep` is a share of each part's groups, and `keep_count` a number of each."""
    metric: Literal["std", "sample_std", "mean", "sum", "entropy", "entropy_std", "length"] = "std"
    """The score of a group: the standard deviation of its returns with ddof 0 ('std') or with ddof 1 ('sample_std', the
    public code), their mean or their sum, the mean negative behaviour log-probability of its response tokens
    ('entropy', nats), the standard deviation, with ddof 0, of this over its trajectories ('entropy_std'), or the mean
    number of response tokens of a trajectory. The two deviations of returns keep the same groups, but with
    'top_p_softmax', or where trajectories ended in errors; so do mean and sum."""
    should_keep_largest: bool = True
    """True: the best groups are those with the largest score. False: the smallest."""
    num_wanted: int | None = Field(None, ge=1, exclude_if=lambda number: number is None)
    """Groups that an update is made of (DAPO's batch): of more that the strategy keeps, those played first. Where they
    are fewer, rollout.max_attempts says how often more are played. None: as many as the strategy keeps."""
    should_drop_zero_variance: bool = True
    """Drop groups whose returns are all equal (std <= 1e-6) before anything else, whatever the metric."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Settings of the strategy's own, where it is not a built-in one: it gets them as `config.options`."""
    max_empty_iterations: int = Field(5, ge=1)
    """Iterations in a row in which nothing is kept before the run stops. Until then an empty iteration makes no update:
    the checkpoint is passed on unchanged, and the metric `filter/num_empty` counts it."""

    @field_validator("options")
    @classmethod
    def _are_the_strategys(cls, options: dict[str, JsonValue], info: ValidationInfo) -> dict[str, Any]:
        return checked_options(FILTERS, info.data["strategy"], options) if "strategy" in info.data else options

    @model_validator(mode="after")
    def _shares_need_positive_scores(self) -> "FilterConfig":
        if self.strategy in ("top_p_linear", "min_p") and self.metric in ("mean", "sum"):
            raise ValueError(
                f"strategy = '{self.strategy}' takes shares of the scores, and the {self.metric} of returns can be "
                "negative; use metric = 'std', 'entropy' or 'length', or strategy = 'top_fraction', 'top_k' or "
                "'top_p_softmax'"
            )
        return self
