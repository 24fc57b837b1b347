"""turns, rewards -> selection."""

from collections.abc import Iterator

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.core.registry import FILTERS
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.store import Store
from starpo.ragen.work import Made, Work
from starpo.schemas.manifest import Stage

STAGE = Stage(name="variance_filter", version=3)

_OF_THE_RUN = {"max_empty_iterations"}
"""Settings that say when a run stops, not what is kept."""


def variance_filter(config: FilterConfig, turns: str, rewards: str) -> Work:
    """Decide which groups are trained on, and say why. Iterations that share a rollout share its selection."""

    def do(work: Work, store: Store) -> Iterator[Made]:
        selection = select_groups(store.read_table("turns", turns), store.read_table("rewards", rewards), config)
        num_kept = sum(selection["kept"].to_pylist())
        yield Made("selection", selection, {"num_kept": num_kept, "num_groups": selection.num_rows})

    settings = config.model_dump(mode="json", exclude=_OF_THE_RUN)
    inputs, code = {"turns": turns, "rewards": rewards}, {"strategy": FILTERS[config.strategy]}
    return Work(STAGE, ("selection",), do, settings, inputs, code=code)
