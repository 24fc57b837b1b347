"""turns, rewards, selections of earlier attempts -> selection."""

from collections.abc import Iterator, Sequence

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.core.registry import FILTERS
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import num_kept, numbered
from starpo.schemas.manifest import Stage

STAGE = Stage(name="variance_filter", version=4)

_OF_OWN_STRATEGIES = Stage(name=STAGE.name, version=5)
"""The stage with a strategy that is not built in: its reasons name the strategy's own options in place of `keep`."""
_OF_THE_RUN = {"max_empty_iterations"}
"""Settings that decide when a run stops, not which groups are kept."""


def variance_filter(config: FilterConfig, turns: str, rewards: str, earlier: Sequence[str] = ()) -> Work:
    """Select the groups to train on and record the reasons. Iterations that share a rollout share its selection.

    Args:
        config: Settings of the filter.
        turns: Key of the turns.
        rewards: Key of their rewards.
        earlier: Keys of the selections of the iteration's earlier attempts, in order; the groups that they kept count
            towards the wanted number.
    """

    def do(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
        num_before = sum(num_kept(store, key) for key in earlier)
        tables = store.read_table("turns", turns), store.read_table("rewards", rewards)
        selection = select_groups(*tables, config, num_before)
        headline = {"num_kept": sum(selection["kept"].to_pylist()), "num_groups": selection.num_rows}
        yield Output("selection", selection, headline)

    settings = config.model_dump(mode="json", exclude=_OF_THE_RUN)
    inputs = {"turns": turns, "rewards": rewards}
    inputs |= {numbered("selection", attempt): key for attempt, key in enumerate(earlier)}
    code, part = {"strategy": FILTERS[config.strategy]}, str(len(earlier)) if earlier else ""
    stage = STAGE if FILTERS.is_built_in(config.strategy) else _OF_OWN_STRATEGIES
    return Work(stage, ("selection",), do, settings, inputs, code=code, part=part)
