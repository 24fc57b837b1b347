"""Plan of a run, before any work: the training loop is walked with keys alone.

    configuration --Planner in place of RunRecorder--> train loop --> RunPlan: every stage's key, and which are stored

The loop is the real one, and so are its stages' keys; only the work is skipped. Keys follow from settings and earlier
keys, so the plan is exact as long as control flow does not depend on data. Where it does (did the filter keep any
group?), the planner looks the data up if stored. If not, it assumes nothing unusual and reports the assumption.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ArtifactDamagedError, CollapsedError, DataError, RunStoppedError
from starpo.ragen.learning.control.standstill import NUM_KEPT
from starpo.ragen.runs.metrics import stored_metrics
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.tasks.loop.rollback import rolled_back
from starpo.tasks.loop.runner import Runner
from starpo.tasks.loop.training import train


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
    """Replacement for a `RunRecorder` that returns the keys of stages instead of carrying them out.

    Attributes:
        plan: Filled as the loop is walked.
        checkpoints: Keys of the checkpoints so far, from the first to the newest.
    """

    def __init__(
        self,
        store: Store | None,
        name: str,
        known: dict[Work, bool] | None = None,
        plan: RunPlan | None = None,
        *,
        stop: int | None = None,
        needed: Collection[str] = (),
    ) -> None:
        """Plan a run.

        Args:
            store: Where artifacts are looked up. None: nothing is, and everything counts as new.
            name: The run's name.
            known: Cache of stage -> whether it is stored.
            plan: Plan to extend. None for a new one.
            stop: Number of iterations to plan. None for all.
            needed: Names of stages; the plan ends with the iteration in which one of them is not stored.
        """
        self.name = name
        self.store_url = store.url if store else ""
        self.plan = RunPlan(name) if plan is None else plan
        self.checkpoints: list[str] = []
        self._store = store
        self._known = {} if known is None else known
        self._stop, self._needed = stop, needed
        self._is_over = False
        self._planned_keys = {stage.key for stage in self.plan.stages}
        self._measured: defaultdict[int, list[str | None]] = defaultdict(list)

    @property
    def is_over(self) -> bool:
        """Whether as much is planned as was asked for."""
        return self._is_over

    def episode_keys(self, config: StarPOConfig) -> Keys:
        """Find the stored episodes that the first checkpoint learns from; none without a store."""
        return super().episode_keys(config) if self._store else {}

    def stage(self, iteration: int, work: Work) -> Keys:
        """Add one stage to the plan."""
        if work.key not in self._planned_keys:
            self._planned_keys.add(work.key)
            self.plan.stages.append(work)
        is_stored = self._is_stored(work)
        if is_stored:
            self.plan.stored.add(work)
        elif work.stage.name in self._needed:
            self._is_over = True
        if "metrics" in work.outputs:
            self._measured[iteration].append(work.key if is_stored else None)
        return work.keys

    def unrecorded(self, iteration: int, work: Work) -> Keys:
        """Add one stage that has no entry in the record."""
        return self.stage(iteration, work)

    def num_kept(self, iteration: int, attempt: int, selection: str) -> int | None:
        """Count the groups kept, as stored; None if not stored or damaged, so that no further attempt is planned."""
        try:
            if self._store and self._store.has("selection", selection):
                return super().num_kept(iteration, attempt, selection)
        except (ArtifactDamagedError, DataError):  # the run itself will report it
            pass
        self.plan.assumed.setdefault(NUM_KEPT, iteration)
        return None

    def metric(self, iteration: int, name: str) -> float | None:
        """Look up the newest value of a metric; None if not measured or damaged."""
        for key in reversed(self._measured[iteration]):
            try:
                values = stored_metrics(self._store, key) if self._store and key else None
            except (ArtifactDamagedError, DataError):  # the run itself will report it
                values = None
            if values is None:
                self.plan.assumed.setdefault(name, iteration)
                return None
            if name in values:
                return values[name]
        return None  # everything is stored, and nothing measures it

    def retain(self, checkpoints: Sequence[str]) -> None:
        """Note the checkpoints."""
        self.checkpoints = list(checkpoints)

    def iteration_done(self, iteration: int) -> None:
        """End the plan after the last iteration that was asked for."""
        self._is_over |= iteration + 1 == self._stop

    def _is_stored(self, work: Work) -> bool:
        if work not in self._known:
            self._known[work] = self._store is not None and work.is_stored(self._store)
        return self._known[work]
