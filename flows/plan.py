"""What a run would do, before it does it: the training loop walked with keys alone.

    configuration --Planner in place of RunRecorder--> train loop --> RunPlan: every stage's key, and is it stored?

The loop and the tasks are the real ones; only the work is left out (`tasks.stage.planning`). Keys follow from settings
and earlier keys, so the plan is exact as long as no data decide what comes next. Where they do (did the filter keep any
group?) the planner looks them up if they are stored. If not, it goes on as if nothing out of the ordinary were
measured, and says so.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flows.training import train
from ragen.config.starpo import StarPOConfig
from ragen.errors import ArtifactDamagedError, DataError, NothingKeptError
from ragen.store import Store
from tasks.progress import RunProgress
from tasks.stage import Keys, PlannedStage, planning


@dataclass
class RunPlan:
    """A run, planned.

    Attributes:
        stages: In the order of the loop, each once; Online-k iterations share a rollout and its rewards.
        stored: Those whose artifacts are all in the store.
        assumed: Metric -> first iteration at which it decides what comes next and is not known yet.
        stops: Why the run ends early, as its stored data say; None: it does not.
    """

    stages: list[PlannedStage] = field(default_factory=list)
    stored: set[PlannedStage] = field(default_factory=set)
    assumed: dict[str, int] = field(default_factory=dict)
    stops: str | None = None

    @property
    def new(self) -> list[PlannedStage]:
        """Those that are to be done."""
        return [stage for stage in self.stages if stage not in self.stored]


def plan_run(store: Store, name: str, config: StarPOConfig, known: dict[PlannedStage, bool] | None = None) -> RunPlan:
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
    except NothingKeptError as error:
        planner.plan.stops = str(error)
    return planner.plan


class Planner:
    """Stands in for a `RunRecorder`: derives the keys of stages instead of running them."""

    def __init__(self, store: Store, name: str, known: dict[PlannedStage, bool]) -> None:
        self.name = name
        self.store_url = store.url
        self.progress: RunProgress | None = None
        self.plan = RunPlan()
        self._store = store
        self._known = known
        self._iteration = 0
        self._seen: set[PlannedStage] = set()
        self._measured: list[str | None] = []
        self.metrics: Mapping[str, float] = LookedUp(self._value)

    def stage(self, iteration: int, name: str, task: Callable[..., Keys], /, *args: Any, **kwargs: Any) -> Keys:
        """Derive the keys of one stage."""
        self._iteration = iteration
        with planning() as noted:
            keys: Keys = task.fn(*args, **kwargs)  # type: ignore[attr-defined]
        for stage in noted:
            if stage not in self._seen:
                self._seen.add(stage)
                self.plan.stages.append(stage)
            if self._is_stored(stage):
                self.plan.stored.add(stage)
            self.noted(stage)
        if "metrics" in keys:
            self._measured.append(keys["metrics"] if all(map(self._is_stored, noted)) else None)
        return keys

    @contextmanager
    def beside(
        self, iteration: int, name: str, task: Callable[..., Keys], /, *args: Any, **kwargs: Any
    ) -> Iterator[Keys]:
        """Derive the keys of one stage; there is nothing that could take its time."""
        yield self.stage(iteration, name, task, *args, **kwargs)

    def unrecorded(self, task: Callable[..., Keys], /, *args: Any, **kwargs: Any) -> Keys:
        """Derive the keys of one stage that no record names."""
        return self.stage(self._iteration, "", task, *args, **kwargs)

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        """An iteration that uses an earlier one's artifacts has none of its own to plan."""

    def warn(self, message: str) -> None:
        """A warning is for whoever watches the run."""

    def note(self, iteration: int, values: Mapping[str, float]) -> None:
        """Nothing is measured."""

    def retain(self, checkpoints: Sequence[str]) -> None:
        """Nothing is dropped."""

    def training_begins(self) -> None:
        """Time is not planned."""

    def iteration_done(self, iteration: int, should_summarise: bool = True) -> None:
        """There is nothing to tell yet."""

    def noted(self, stage: PlannedStage) -> None:
        """A stage is planned: for those who plan not all."""

    def _is_stored(self, stage: PlannedStage) -> bool:
        if stage not in self._known:
            self._known[stage] = all(self._store.was_made(kind, stage.key) for kind in stage.kinds)
        return self._known[stage]

    def _value(self, name: str) -> float:
        """The newest stored value; NaN, of which no comparison holds, where it is yet to be measured or is damaged."""
        for key in reversed(self._measured):
            if key is None:
                break
            try:
                table = self._store.read_table("metrics", key, columns=["name", "value"])
            except (ArtifactDamagedError, DataError):  # the run itself will meet it, and say so
                break
            values = dict(zip(table["name"].to_pylist(), table["value"].to_pylist(), strict=True))
            if name in values:
                return values[name]
        self.plan.assumed.setdefault(name, self._iteration)
        return math.nan


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
