"""A run's record beside what its settings ask for: the training loop walked with the keys that are recorded.

    run.json, records --RecordWalk in place of RunRecorder--> loop --> visits, findings

The loop and the tasks are the real ones; only the work is left out (`tasks.stage.planning`). Every stage's key follows
from the settings, its place and the recorded keys of its inputs, so a key that was put into another place does not fit
there, an evaluation that was taken out is missed, and one that was put in is left over. What the loop decides by
measured numbers it decides here by the stored ones.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flows.plan import LookedUp
from flows.replay import carry_out
from flows.training import train
from ragen.config.starpo import StarPOConfig
from ragen.errors import ArtifactDamagedError, ArtifactMissingError, NothingKeptError, StarPOError
from ragen.replay.plan import plan_replay
from ragen.store import Store
from ragen.store.keys import as_json
from ragen.store.runs import RECORD_ADVICE, Run, StageKeys
from ragen.store.seals import record_path
from ragen.verify.finding import Finding, Verdict, first_line
from ragen.verify.origin import misfit
from ragen.verify.plan import Visit, Work
from ragen.visible import quoted
from tasks.diagnose import diagnose
from tasks.evaluate import evaluate
from tasks.progress import RunProgress
from tasks.reward import reward
from tasks.stage import Keys, planning
from tasks.variance_filter import variance_filter


class _RecordEndsError(Exception):
    """A stage is not recorded, and nothing after it is."""


def walk_record(store: Store, run: Run, config: StarPOConfig, recorded: Mapping[int, StageKeys]) -> "RecordWalk":
    """Compare a run's record with what its settings ask for.

    Args:
        store: Where the run is; it is only read.
        run: The run.
        config: Its settings.
        recorded: From `Runs.iterations`.
    """
    walk = RecordWalk(store, run.name, recorded)
    state = store.runs.state(run.name)
    status = state.status if state else "unknown"
    try:
        if run.flow == "starpo":
            train(walk, config)
        elif run.flow == "replay":
            _walk_replay(walk, run, config)
        elif run.flow == "import":
            _walk_import(walk, run, config)
        else:
            walk.not_shown(
                *walk.ends_at, f"this release knows no flow {quoted(run.flow)}: nothing tells what it records"
            )
            walk.left.clear()
    except _RecordEndsError as end:
        if status == "completed":
            walk.fault(*walk.ends_at, f"{end}, though the run says that it is completed. {RECORD_ADVICE}")
        else:
            walk.not_shown(*walk.ends_at, f"the run is {status} and has not come to its end: {end}")
    except NothingKeptError as error:
        if status == "completed":
            walk.fault(*walk.ends_at, f"the run says that it is completed, and by its record it failed: {error}")
    except StarPOError as error:
        walk.fault(*walk.ends_at, f"what the run's settings ask for cannot be told: {first_line(error)}")
    walk.close()
    return walk


def _walk_replay(walk: "RecordWalk", run: Run, config: StarPOConfig) -> None:
    """A replay's rollouts are those that the record of its base names, and as that one's loop asks for them."""
    store, parameters, stages = walk.store, run.parameters, walk.names()
    should_update = "update" in stages
    try:
        start, stop = parameters["start"], parameters["stop"]
        plan = plan_replay(store, parameters["base"], start, stop, should_update=should_update)
    except (ArtifactMissingError, ArtifactDamagedError) as error:
        walk.fault(min(walk.recorded, default=0), "record", f"what it replays is not whole: {first_line(error)}")
        walk.left.clear()
        return
    except (StarPOError, KeyError) as error:
        walk.not_shown(*walk.ends_at, f"what it replays is not here: {first_line(error)}")
        walk.left.clear()
        return
    base = RecordWalk(store, plan.base.name, store.runs.iterations(plan.base.name))
    with suppress(_RecordEndsError, NothingKeptError):
        train(base, plan.base_config)
    walk.calls |= base.calls
    should_evaluate = any(name.startswith(("evaluate:", "evaluate_base:")) for name in stages)
    carry_out(walk, replace(plan, config=config), should_update, should_evaluate)


def _walk_import(walk: "RecordWalk", run: Run, config: StarPOConfig) -> None:
    for iteration in range(len(run.parameters.get("files", walk.recorded))):
        data, url = walk.given(iteration, "rollout"), walk.store_url
        data |= walk.stage(iteration, "reward", reward, url, iteration, config.reward, **data)
        data |= walk.stage(iteration, "variance_filter", variance_filter, url, iteration, config.filter, **data)
        walk.stage(iteration, "diagnose", diagnose, url, iteration, **data)


@dataclass(frozen=True)
class _Call:
    """A stage, as the loop asks for it.

    Attributes:
        work: What it does.
        outputs: Kind -> key that follows from it.
        repeat: Does it, in the store of this address.
    """

    work: Work
    outputs: Keys
    repeat: Callable[[str], Keys]


class RecordWalk:
    """Stands in for a `RunRecorder`: gives the loop what is recorded, and compares that with what the loop asks for.

    Attributes:
        name: The run's name.
        store: Where it is.
        store_url: Its address.
        progress: None: nothing is done.
        metrics: The newest stored value of every metric.
        recorded: Iteration -> stage -> {kind: key}.
        visits: Recorded stages in the order of the work. Work that several iterations recorded (Online-k) is visited
            where it was done.
        findings: Where the record does not fit.
        calls: Key -> the stage that made it, as the loop asks for it.
        left: (Iteration, stage) -> {kind: key}: what of the record was not come by yet.
        ends_at: Iteration and stage that were missed last.
    """

    def __init__(self, store: Store, name: str, recorded: Mapping[int, StageKeys]) -> None:
        self.name = name
        self.store = store
        self.store_url = store.url
        self.progress: RunProgress | None = None
        self.recorded = recorded
        self.visits: list[Visit] = []
        self.findings: list[Finding] = []
        self.calls: dict[str, _Call] = {}
        self.left = {(n, stage): keys for n, stages in recorded.items() for stage, keys in stages.items()}
        self.ends_at = (0, "record")
        self.metrics: Mapping[str, float] = LookedUp(self._value)
        self._measured: list[str] = []
        self._seen: set[tuple[tuple[str, str], ...]] = set()
        self._iteration = 0

    def names(self) -> set[str]:
        """Of all recorded stages."""
        return {name for stages in self.recorded.values() for name in stages}

    def stage(self, iteration: int, name: str, task: Callable[..., Keys], /, *args: Any, **kwargs: Any) -> Keys:
        """Compare what is recorded in this place with what the loop asks for; returns the former."""
        self._iteration = iteration
        call = _implied(task, args, kwargs)
        recorded = self._taken(iteration, name)
        if recorded is None:
            self._missed(iteration, name)
        else:
            self._compare(iteration, name, recorded, call)
        keys = call.outputs | (recorded or {})
        self.calls |= dict.fromkeys(keys.values(), call)
        if "metrics" in keys:
            self._measured.append(keys["metrics"])
        return keys

    @contextmanager
    def beside(
        self, iteration: int, name: str, task: Callable[..., Keys], /, *args: Any, **kwargs: Any
    ) -> Iterator[Keys]:
        """The same of a stage that is recorded after those of the block."""
        keys: Keys = {}
        yield keys
        keys |= self.stage(iteration, name, task, *args, **kwargs)

    def unrecorded(self, task: Callable[..., Keys], /, *args: Any, **kwargs: Any) -> Keys:
        """Keys of a stage that the record does not name in a place of its own."""
        call = _implied(task, args, kwargs)
        self.calls |= dict.fromkeys(call.outputs.values(), call)
        return call.outputs

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        """Compare what is recorded in this place with artifacts that were made before, or elsewhere."""
        recorded = self._taken(iteration, name)
        if recorded is None:
            self._missed(iteration, name)
            return
        is_misplaced = recorded != keys
        if is_misplaced:
            self.fault(iteration, name, f"the record names {_listed(recorded)}; what is used again here is "
                       f"{_listed(keys)}. {RECORD_ADVICE}", recorded)  # fmt: skip
        call = self.calls.get(next(iter(recorded.values()), ""))
        self._visit(
            Visit(
                iteration,
                name,
                call.work.stage.name if call else name.partition(":")[0],
                recorded,
                call.work if call else None,
                call.repeat if call else None,
                is_misplaced,
            )
        )

    def given(self, iteration: int, name: str) -> Keys:
        """What is recorded in this place, whatever it is: it came from elsewhere."""
        recorded = self._taken(iteration, name)
        if recorded is None:
            self._missed(iteration, name)
            raise _RecordEndsError(f"its record names no {name} in iteration {iteration}")
        self._visit(Visit(iteration, name, name, recorded))
        return dict(recorded)

    def warn(self, message: str) -> None:
        """A warning is for whoever watches the run."""

    def note(self, *_: Any) -> None:
        """Numbers that no stage measures are not recorded."""

    def retain(self, checkpoints: Sequence[str]) -> None:
        """Nothing is dropped."""

    def training_begins(self) -> None:
        """Time is not told."""

    def iteration_done(self, iteration: int, should_summarise: bool = True) -> None:
        """There is nothing to tell."""

    def close(self) -> None:
        """Name what the loop did not come by."""
        for (iteration, name), keys in self.left.items():
            self.fault(iteration, name, "the run's settings ask for no such stage here", keys)

    def fault(self, iteration: int, name: str, detail: str, keys: Mapping[str, str] | None = None) -> None:
        """Something in the record does not fit."""
        self._find(iteration, name, Verdict.DIFFERENT, detail, keys)

    def not_shown(self, iteration: int, name: str, detail: str) -> None:
        """Nothing tells whether it fits."""
        self._find(iteration, name, Verdict.NOT_SHOWN, detail, None)

    def _find(self, iteration: int, name: str, verdict: Verdict, detail: str, keys: Mapping[str, str] | None) -> None:
        record = f"runs/{self.name}/{record_path(iteration)}"
        artifact = "/".join(next(iter(keys.items()))) if keys else record
        self.findings.append(Finding(iteration, name, "place", verdict, f"{record}: {detail}", artifact))

    def _taken(self, iteration: int, name: str) -> Keys | None:
        keys = self.left.pop((iteration, name), None)
        return None if keys is None else dict(keys)

    def _missed(self, iteration: int, name: str) -> None:
        self.ends_at = iteration, name
        missing = f"the record names no {name} in iteration {iteration}, and the run's settings ask for it"
        if not self.left:
            raise _RecordEndsError(missing)
        self.fault(iteration, name, f"{missing}. {RECORD_ADVICE}")

    def _compare(self, iteration: int, name: str, recorded: Keys, call: _Call) -> None:
        verdict, detail = Verdict.SAME, ""
        if recorded != call.outputs:
            verdict, detail = self._misfit(recorded, call)
        if verdict is Verdict.DIFFERENT:
            self.fault(iteration, name, f"{detail}. {RECORD_ADVICE}", recorded)
        is_misplaced = verdict is Verdict.DIFFERENT
        stage, excuse = call.work.stage.name, "" if is_misplaced else detail
        self._visit(Visit(iteration, name, stage, recorded, call.work, call.repeat, is_misplaced, excuse))

    def _misfit(self, recorded: Keys, call: _Call) -> tuple[Verdict, str]:
        """Say how what is recorded differs from what belongs there, and whether that is a matter of releases."""
        if recorded.keys() != call.outputs.keys():
            return Verdict.DIFFERENT, f"it names {_listed(recorded)}, and the stage makes {', '.join(call.outputs)}"
        excuses = set()
        for kind, key in recorded.items():
            if key == call.outputs[kind]:
                continue
            try:
                manifest = self.store.dropped(kind, key) or self.store.manifest(kind, key)
            except StarPOError as error:
                return (
                    Verdict.DIFFERENT,
                    f"it names {kind}/{key}, its place asks for {kind}/{call.outputs[kind]}, and the former cannot be "
                    f"read: {first_line(error)}",
                )
            verdict, detail = misfit(manifest, call.work)
            if verdict is Verdict.DIFFERENT:
                return verdict, f"it names {kind}/{key}, and {detail}"
            excuses.add(detail)
        return Verdict.NOT_SHOWN, "; ".join(sorted(excuses))

    def _visit(self, visit: Visit) -> None:
        made = tuple(sorted(visit.outputs.items()))
        if made not in self._seen:
            self._seen.add(made)
            self.visits.append(visit)

    def _value(self, name: str) -> float:
        """The newest stored value; where it cannot be read, what the record says of it, or NaN."""
        for key in reversed(self._measured):
            try:
                table = self.store.read_table("metrics", key, columns=["name", "value"])
            except StarPOError:
                break
            values = dict(zip(table["name"].to_pylist(), table["value"].to_pylist(), strict=True))
            if name in values:
                return values[name]
        if name == "filter/num_kept":
            return float("update" in self.recorded.get(self._iteration, {}))
        return math.nan


def _implied(task: Callable[..., Keys], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    """A stage as the loop asks for it; its first argument is the store."""
    with planning() as noted:
        outputs = task.fn(*args, **kwargs)  # type: ignore[attr-defined]
    [stage] = noted
    work = stage.work
    assert work is not None
    implied = Work(work.stage, as_json(work.settings), work.inputs, work.seed)
    if task is evaluate:  # what its checkpoint was trained on is in the store that has the run
        kwargs = {**kwargs, "lineage": args[0]}
    return _Call(implied, outputs, partial(_repeat, task, args[1:], kwargs))


def _repeat(task: Callable[..., Keys], args: tuple[Any, ...], kwargs: dict[str, Any], store_url: str) -> Keys:
    keys: Keys = task.fn(store_url, *args, **kwargs)  # type: ignore[attr-defined]
    return keys


def _listed(keys: Mapping[str, str]) -> str:
    return ", ".join(f"{kind}/{key}" for kind, key in keys.items()) or "nothing"
