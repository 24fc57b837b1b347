"""What a run would do, before it does it: the training loop walked with keys alone.

    configuration --Planner in place of RunRecorder--> train loop --> RunPlan: every stage's key, and is it stored?

The loop is the real one, and so are its stages' keys; only the work is not done. Keys follow from settings and earlier
keys, so the plan is exact as long as no data decide what comes next. Where they do (did the filter keep any group?) the
planner looks them up if they are stored. If not, it goes on as if nothing out of the ordinary were measured, and says
so.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from starpo.flows.training import Runner, train
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ArtifactDamagedError, DataError, RunStoppedError
from starpo.ragen.evidence.diagnostics.series import stored_metrics
from starpo.ragen.store import Store
from starpo.ragen.work import Keys, Work


@dataclass
class RunPlan:
    """A run, planned.

    Attributes:
        stages: In the order of the loop, each once; Online-k iterations share a rollout and its rewards.
        stored: Those whose artifacts are all in the store.
        assumed: Metric -> first iteration at which it decides what comes next and is not known yet.
        stops: Why the run ends early, as its stored data say; None: it does not.
    """

    stages: list[Work] = field(default_factory=list)
    stored: set[Work] = field(default_factory=set)
    assumed: dict[str, int] = field(default_factory=dict)
    stops: str | None = None

    @property
    def new(self) -> list[Work]:
        """Those that are to be done."""
        return [stage for stage in self.stages if stage not in self.stored]


def plan_run(store: Store, name: str, config: StarPOConfig, known: dict[Work, bool] | None = None) -> RunPlan:
    """Plan a run.

    Args:
        store: Where artifacts are looked for; nothing is written to it.
        name: The run's name.
        config: Its settings.
        known: Stage -> is it stored? Filled here; share it between plans to ask the store once a stage.
    """
    planner = Planner(store, name, {} if known is None else known)
    try:
        train(planner, config)
    except RunStoppedError as error:
        planner.plan.stops = str(error)
    return planner.plan


class Planner(Runner):
    """Stands in for a `RunRecorder`: gives the keys of stages instead of having them done."""

    def __init__(self, store: Store, name: str, known: dict[Work, bool]) -> None:
        self.name = name
        self.store_url = store.url
        self.plan = RunPlan()
        self._store = store
        self._known = known
        self._seen: set[str] = set()
        self._measured: defaultdict[int, list[str | None]] = defaultdict(list)

    def stage(self, iteration: int, work: Work) -> Keys:
        """Note one stage."""
        if work.key not in self._seen:
            self._seen.add(work.key)
            self.plan.stages.append(work)
        is_stored = self._is_stored(work)
        if is_stored:
            self.plan.stored.add(work)
        if "metrics" in work.outputs:
            self._measured[iteration].append(work.key if is_stored else None)
        return work.keys

    def unrecorded(self, iteration: int, work: Work) -> Keys:
        """Note one stage that no record names."""
        return self.stage(iteration, work)

    def num_kept(self, iteration: int, attempt: int, selection: str) -> float:
        """As stored; where that is yet to be made or is damaged, NaN: no further attempt is planned."""
        try:
            if self._store.has("selection", selection):
                return super().num_kept(iteration, attempt, selection)
        except (ArtifactDamagedError, DataError):  # the run itself will meet it, and say so
            pass
        self.plan.assumed.setdefault("filter/num_kept", iteration)
        return math.nan

    def _is_stored(self, work: Work) -> bool:
        if work not in self._known:
            self._known[work] = work.is_stored(self._store)
        return self._known[work]

    def measured(self, iteration: int) -> Mapping[str, float]:
        """The stored metrics of an iteration."""
        return LookedUp(partial(self._value, iteration))

    def _value(self, iteration: int, name: str) -> float:
        """The newest; NaN, of which no comparison holds, where it is yet to be measured or is damaged."""
        for key in reversed(self._measured[iteration]):
            try:
                values = None if key is None else stored_metrics(self._store, key)
            except (ArtifactDamagedError, DataError):  # the run itself will meet it, and say so
                values = None
            if values is None:
                self.plan.assumed.setdefault(name, iteration)
                return math.nan
            if name in values:
                return values[name]
        return math.nan  # all is stored, and nothing measures it


class LookedUp(Mapping[str, float]):
    """Metrics that are looked up when they are asked for."""

    def __init__(self, value: Callable[[str], float]) -> None:
        self._value = value

    def __getitem__(self, name: str) -> float:
        return self._value(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
