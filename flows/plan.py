"""Plan of a run, before any work: the training loop is walked with keys alone.

    configuration --Planner in place of RunRecorder--> train loop --> RunPlan: every stage's key, and which are stored

The loop is the real one, and so are its stages' keys; only the work is skipped. Keys follow from settings and earlier
keys, so the plan is exact as long as control flow does not depend on data. Where it does (did the filter keep any
group?), the planner looks the data up if stored. If not, it assumes nothing unusual and reports the assumption.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from starpo.flows.rollback import rolled_back
from starpo.flows.training import Runner, train
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ArtifactDamagedError, CollapsedError, DataError, RunStoppedError
from starpo.ragen.runs.metrics import stored_metrics
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store


@dataclass
class RunPlan:
    """Plan of a run.

    Attributes:
        stages: All stages in the order of the loop, each once; Online-k iterations share a rollout and its rewards.
        stored: Stages whose artifacts are all in the store.
        assumed: Metric -> first iteration at which control flow depends on it while it is not known yet.
        stops: Why the run ends early, according to its stored data; None if it does not.
        ends_as: Name that the run ends under: its own, or that of the last fork that it is rolled back to, according to
            its stored data. The stages include those of the forks.
    """

    ends_as: str
    stages: list[Work] = field(default_factory=list)
    stored: set[Work] = field(default_factory=set)
    assumed: dict[str, int] = field(default_factory=dict)
    stops: str | None = None

    @property
    def new(self) -> list[Work]:
        """Stages that are not stored yet."""
        return [stage for stage in self.stages if stage not in self.stored]


def plan_run(store: Store, name: str, config: StarPOConfig, known: dict[Work, bool] | None = None) -> RunPlan:
    """Plan a run, and the forks that it is rolled back to.

    Args:
        store: Where artifacts are looked up; nothing is written to it.
        name: The run's name.
        config: Its settings.
        known: Cache of stage -> whether it is stored, filled here. Share it between plans to look up each stage once.
    """
    plan, known = RunPlan(name), {} if known is None else known
    while True:
        try:
            train(Planner(store, plan.ends_as, known, plan), config)
        except CollapsedError as error:
            if (again := rolled_back(plan.ends_as, config, error.healthy)) is not None:
                plan.ends_as, config = again
                continue
            plan.stops = str(error)
        except RunStoppedError as error:
            plan.stops = str(error)
        return plan


class Planner(Runner):
    """Replacement for a `RunRecorder` that returns the keys of stages instead of carrying them out."""

    def __init__(self, store: Store, name: str, known: dict[Work, bool], plan: RunPlan | None = None) -> None:
        self.name = name
        self.store_url = store.url
        self.plan = RunPlan(name) if plan is None else plan
        self._store = store
        self._known = known
        self._seen = {stage.key for stage in self.plan.stages}
        self._measured: defaultdict[int, list[str | None]] = defaultdict(list)

    def stage(self, iteration: int, work: Work) -> Keys:
        """Add one stage to the plan."""
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
        """Add one stage that has no entry in the record."""
        return self.stage(iteration, work)

    def num_kept(self, iteration: int, attempt: int, selection: str) -> float:
        """Count the groups kept, as stored; NaN if not stored or damaged, so that no further attempt is planned."""
        try:
            if self._store.has("selection", selection):
                return super().num_kept(iteration, attempt, selection)
        except (ArtifactDamagedError, DataError):  # the run itself will report it
            pass
        self.plan.assumed.setdefault("filter/num_kept", iteration)
        return math.nan

    def _is_stored(self, work: Work) -> bool:
        if work not in self._known:
            self._known[work] = work.is_stored(self._store)
        return self._known[work]

    def measured(self, iteration: int) -> Mapping[str, float]:
        """Return the stored metrics of an iteration."""
        return LookedUp(partial(self._value, iteration))

    def _value(self, iteration: int, name: str) -> float:
        """Look up the newest value of a metric; NaN, for which comparisons are false, if not measured or damaged."""
        for key in reversed(self._measured[iteration]):
            try:
                values = None if key is None else stored_metrics(self._store, key)
            except (ArtifactDamagedError, DataError):  # the run itself will report it
                values = None
            if values is None:
                self.plan.assumed.setdefault(name, iteration)
                return math.nan
            if name in values:
                return values[name]
        return math.nan  # everything is stored, and nothing measures it


class LookedUp(Mapping[str, float]):
    """Metrics that are looked up lazily; iterating over them yields nothing."""

    def __init__(self, value: Callable[[str], float]) -> None:
        self._value = value

    def __getitem__(self, name: str) -> float:
        return self._value(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
