"""Selection of the groups that are trained on (RAGEN, objectives; RAGEN-2)."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.core.lookup import checked_options, registered
from starpo.ragen.core.registry import FILTERS
from starpo.ragen.core.settings import Settings


class FilterConfig(Settings):
    """Scores and ranks groups, and keeps some of them."""

    strategy: Annotated[str, *registered(FILTERS)] = "top_fraction"
    """'none' keeps all groups; 'top_fraction' keeps a share `keep` of all groups; 'top_k' keeps `keep_count` groups;
    'top_p_linear' and 'top_p_softmax' keep the best groups that hold a share `keep` of the total score or of the
    softmax over scores; 'min_p' keeps groups whose score is at least `keep` times the best score."""
    keep: float = Field(0.25, gt=0.0, le=1.0)
    """Share used by the strategy. Ignored by 'none' and 'top_k'."""
    keep_count: int | None = Field(None, ge=1)
    """Number of groups kept by 'top_k'; required there, and rejected with other strategies."""
    scope: Literal["batch", "environment"] = "batch"
    """Which groups of a mixture are compared. 'batch': all groups of a rollout, so the part whose returns vary most may
    dominate the update. 'environment': the groups of each part separately (RAGEN-2's 'inductive'); `keep` is then a
    share of each part's groups, and `keep_count` a number per part."""
    metric: Literal["std", "sample_std", "mean", "sum", "entropy", "entropy_std", "length"] = "std"
    """Score of a group: the standard deviation of its returns with ddof 0 ('std') or ddof 1 ('sample_std', the public
    code), their mean or sum ('mean', 'sum'), the mean negative behaviour log-probability of its response tokens in nats
    ('entropy'), the standard deviation (ddof 0) of that over its trajectories ('entropy_std'), or the mean number of
    response tokens per trajectory ('length'). 'std' and 'sample_std' keep the same groups, except with 'top_p_softmax'
    or if trajectories ended in errors; the same holds for 'mean' and 'sum'."""
    should_keep_largest: bool = True
    """True: the largest scores are the best. False: the smallest."""
    num_wanted: int | None = Field(None, ge=1)
    """Number of groups per update (DAPO's batch). If the strategy keeps more, the ones played first are used; if it
    keeps fewer, up to rollout.max_attempts rollouts are played. None: all groups that the strategy keeps."""
    should_drop_zero_variance: bool = True
    """Drop groups whose returns are all equal (std <= 1e-6) before applying the strategy, regardless of the metric."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of a strategy that is not built in, which receives them as `config.options`."""
    max_empty_iterations: int = Field(5, ge=1)
    """Stop the run after this many consecutive iterations in which no group is kept. An empty iteration makes no
    update: the checkpoint is passed on unchanged and counted in the metric `filter/num_empty`."""

    @field_validator("options")
    @classmethod
    def _are_the_strategys(cls, options: dict[str, JsonValue], info: ValidationInfo) -> dict[str, Any]:
        return checked_options(FILTERS, info.data["strategy"], options) if "strategy" in info.data else options

    @model_validator(mode="after")
    def _shares_need_positive_scores(self) -> "FilterConfig":
        if self.strategy in ("top_p_linear", "min_p") and self.metric in ("mean", "sum"):
            raise ValueError(
                f"strategy = '{self.strategy}' needs scores >= 0, but the {self.metric} of returns can be "
                "negative; use metric = 'std', 'entropy' or 'length', or strategy = 'top_fraction', 'top_k' or "
                "'top_p_softmax'"
            )
        return self

    def check_fits(self, rollout: RolloutConfig) -> None:
        """Check that the groups of a rollout can be scored and kept as configured.

        Raises:
            ValueError: If they cannot; the message says what to set.
        """
        if self.strategy == "top_k" and self.keep_count is None:
            raise ValueError("filter.strategy = 'top_k' needs filter.keep_count")
        if self.strategy != "top_k" and self.keep_count is not None:
            raise ValueError("filter.keep_count has no effect unless filter.strategy = 'top_k'; leave it out")
        if rollout.group_size == 1 and self.should_drop_zero_variance:
            raise ValueError(
                "a group of one has no variance, so filter.should_drop_zero_variance would drop every group: "
                "set it to false, or rollout.group_size >= 2"
            )
        is_zero = self.metric in ("std", "sample_std", "entropy_std")
        if rollout.group_size == 1 and self.strategy == "top_p_linear" and is_zero:
            raise ValueError(
                f"filter.metric = '{self.metric}' is 0 in a group of one, and filter.strategy = 'top_p_linear' "
                "keeps no group without a score: set rollout.group_size >= 2, or another metric or strategy"
            )
        if rollout.max_attempts > 1 and self.num_wanted is None:
            raise ValueError(
                f"rollout.max_attempts = {rollout.max_attempts} samples until enough groups are kept: set "
                "filter.num_wanted to that number. DAPO's dynamic sampling is filter.strategy = 'none' and "
                f"filter.num_wanted = {rollout.num_groups}, or fewer"
            )
