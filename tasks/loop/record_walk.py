"""A run's record compared with what its settings imply: the training loop is walked with the recorded keys.

    run.json, records --RecordWalk in place of RunRecorder--> loop --> visits, findings

The loop is the real one, and so are its stages' keys; only the work is skipped. Every key follows from the settings,
the stage's place and the recorded keys of its inputs. So a key that was moved to another place does not fit there, a
removed evaluation is missed, and an inserted one is left over. Decisions that depend on metrics use the stored ones.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import (
    ArtifactDamagedError,
    ArtifactMissingError,
    EnvironmentFault,
    RunStoppedError,
    SourceMissingError,
    StarPOError,
    first_line,
)
from starpo.ragen.core.visible import quoted
from starpo.ragen.learning.control.standstill import NUM_KEPT
from starpo.ragen.runs.metrics import stored_metrics
from starpo.ragen.runs.replay.plan import plan_replay
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.origin import mismatch
from starpo.ragen.runs.verify.verdict import CheckResult, Verdict
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of, numbered
from starpo.ragen.store.records.runs import RECORD_ADVICE, RunRecord, StageKeys
from starpo.ragen.store.records.seals import record_path
from starpo.tasks.loop.replay import replay_run
from starpo.tasks.loop.runner import Runner
from starpo.tasks.loop.training import reward_and_filter, train


def walk_record(store: Store, run: RunRecord, config: StarPOConfig, recorded: Mapping[int, StageKeys]) -> "RecordWalk":
    """Compare a run's record with what its settings imply.

    Args:
        store: Where the run is stored; it is only read.
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
            walk.not_shown(*walk.ends_at, f"this release has no flow {quoted(run.flow)}, so what it records is unknown")
            walk.left.clear()
    except RunStoppedError as error:
        if status == "completed":
            walk.fault(*walk.ends_at, f"the run's status is completed, but its record shows that it failed: {error}")
    except EnvironmentFault as error:  # a file that the settings name is missing or has changed
        find = walk.not_shown if isinstance(error, SourceMissingError) else walk.fault
        find(*walk.ends_at, f"what the run's settings ask for cannot be determined: {first_line(error)}")
        walk.visit_left(first_line(error))
    except StarPOError as error:
        walk.fault(*walk.ends_at, f"what the run's settings ask for cannot be determined: {first_line(error)}")
    if walk.end and status == "completed":
        walk.fault(*walk.ends_at, f"{walk.end}, although the run's status is completed. {RECORD_ADVICE}")
    elif walk.end:
        walk.not_shown(*walk.ends_at, f"the run has not come to its end (its state is {status}): {walk.end}")
    walk.close()
    return walk


def _walk_replay(walk: "RecordWalk", run: RunRecord, config: StarPOConfig) -> None:
    """Walk a replay; its rollouts must be those in the base run's record, as the base run's loop expects them."""
    store, parameters, stages = walk.store, run.parameters, walk.names()
    should_update = parameters.get("should_update", True)
    try:
        start, stop = parameters["start"], parameters["stop"]
        plan = plan_replay(store, parameters["base"], start, stop, should_update=should_update)
    except (ArtifactMissingError, ArtifactDamagedError) as error:
        walk.fault(min(walk.recorded, default=0), "record", f"what it replays is incomplete: {first_line(error)}")
        walk.left.clear()
        return
    except (StarPOError, KeyError) as error:
        walk.not_shown(*walk.ends_at, f"what it replays is not here: {first_line(error)}")
        walk.left.clear()
        return
    base = RecordWalk(store, plan.base.name, store.runs.iterations(plan.base.name))
    with suppress(RunStoppedError):
        train(base, plan.base_config)
    walk.works |= base.works
    should_evaluate = any(name.startswith(("evaluate:", "evaluate_base:")) for name in stages)
    replay_run(walk, replace(plan, config=config), should_evaluate)


def _walk_import(walk: "RecordWalk", run: RunRecord, config: StarPOConfig) -> None:
    """Walk an import; iterations whose source had no rewards consist of a rollout alone."""
    unpaid = run.parameters.get("unpaid", ())
    for iteration in range(len(run.parameters.get("files", walk.recorded))):
        turns = walk.given(iteration, "rollout")
        if walk.is_over:
            return
        if iteration not in unpaid:
            reward_and_filter(walk, config, iteration, turns)


class RecordWalk(Runner):
    """Replacement for a `RunRecorder` that gives the loop the recorded keys and compares them with the expected ones.

    Attributes:
        name: The run's name.
        store: Where the run is stored.
        store_url: URL of the store.
        recorded: Iteration -> stage -> {kind: key}.
        visits: Recorded stages, in the order of the loop. Work that several iterations recorded (Online-k) is visited
            once, where it was done.
        findings: Places where the record does not fit.
        works: Key -> the stage that made it, as expected by the loop.
        left: (Iteration, stage) -> {kind: key}: recorded entries that the loop has not reached yet.
        ends_at: Iteration and name of the stage that was missing last.
        end: Why the walk is over, in words, once a stage and everything after it are not recorded; empty until then.
    """

    def __init__(self, store: Store, name: str, recorded: Mapping[int, StageKeys]) -> None:
        self.name = name
        self.store = store
        self.store_url = store.url
        self.recorded = recorded
        self.visits: list[Visit] = []
        self.findings: list[CheckResult] = []
        self.works: dict[str, Work] = {}
        self.left = {(n, stage): keys for n, stages in recorded.items() for stage, keys in stages.items()}
        self.ends_at = (0, "record")
        self.end = ""
        self._measured: defaultdict[int, list[str]] = defaultdict(list)
        self._visited_outputs: set[tuple[tuple[str, str], ...]] = set()

    @property
    def is_over(self) -> bool:
        """Whether nothing more is recorded. What the loop still asks for in the same iteration is no finding."""
        return bool(self.end)

    def names(self) -> set[str]:
        """Return the names of all recorded stages."""
        return {name for stages in self.recorded.values() for name in stages}

    def stage(self, iteration: int, work: Work) -> Keys:
        """Compare the record of this stage with the work that the loop expects, and return the recorded keys."""
        recorded = self._taken(iteration, work.name)
        if recorded is None:
            self._missed(iteration, work.name)
        else:
            self._compare(iteration, recorded, work)
        keys = work.keys | (recorded or {})
        self.works |= dict.fromkeys(keys.values(), work)
        if "metrics" in keys:
            self._measured[iteration].append(keys["metrics"])
        return keys

    def unrecorded(self, iteration: int, work: Work) -> Keys:
        """Return the keys of a stage that has no entry of its own in the record."""
        self.works[work.key] = work
        return work.keys

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        """Compare the record of this stage with the reused artifacts of an earlier iteration or another run."""
        recorded = self._taken(iteration, name)
        if recorded is None:
            self._missed(iteration, name)
            return
        is_misplaced = recorded != keys
        if is_misplaced:
            self.fault(iteration, name, f"the record names {_listed(recorded)}; what is reused here is "
                       f"{_listed(keys)}. {RECORD_ADVICE}", recorded)  # fmt: skip
        work = self.works.get(next(iter(recorded.values()), ""))
        stage = work.stage.name if work else name.partition(":")[0]
        self._visit(Visit(iteration, name, stage, recorded, work, is_misplaced))

    def num_kept(self, iteration: int, attempt: int, selection: str) -> int | None:
        """Count the groups kept, as stored; if unreadable, 0 if the record has a further attempt, else None."""
        try:
            return None if self.end else super().num_kept(iteration, attempt, selection)
        except StarPOError:
            return 0 if numbered("rollout", attempt + 1) in self.recorded.get(iteration, {}) else None

    def given(self, iteration: int, name: str) -> Keys:
        """Return the recorded keys of a stage without comparison, as its artifacts were imported."""
        recorded = self._taken(iteration, name)
        if recorded is None:
            self._missed(iteration, name)
            self.end = self.end or f"its record names no {name} in iteration {iteration}"
            return {}
        self._visit(Visit(iteration, name, name, recorded))
        return dict(recorded)

    def visit_left(self, reason: str) -> None:
        """Visit the recorded stages that the loop has not reached; what they should be is unknown, for this reason."""
        for (iteration, name), keys in self.left.items():
            self._visit(Visit(iteration, name, kind_of(name), keys, excuse=reason))
        self.left.clear()

    def close(self) -> None:
        """Report recorded entries that the loop did not reach."""
        for (iteration, name), keys in self.left.items():
            self.fault(iteration, name, "the run's settings ask for no such stage here", keys)

    def fault(self, iteration: int, name: str, detail: str, keys: Mapping[str, str] | None = None) -> None:
        """Report that an entry of the record does not fit."""
        self._find(iteration, name, Verdict.DIFFERENT, detail, keys)

    def not_shown(self, iteration: int, name: str, detail: str) -> None:
        """Report that it cannot be determined whether an entry fits."""
        self._find(iteration, name, Verdict.NOT_SHOWN, detail, None)

    def _find(self, iteration: int, name: str, verdict: Verdict, detail: str, keys: Mapping[str, str] | None) -> None:
        record = f"runs/{self.name}/{record_path(iteration)}"
        artifact = "/".join(next(iter(keys.items()))) if keys else record
        self.findings.append(CheckResult(iteration, name, "place", verdict, f"{record}: {detail}", artifact))

    def _taken(self, iteration: int, name: str) -> Keys | None:
        keys = self.left.pop((iteration, name), None)
        return None if keys is None else dict(keys)

    def _missed(self, iteration: int, name: str) -> None:
        if self.end:
            return
        self.ends_at = iteration, name
        missing = f"the record names no {name} in iteration {iteration}, but the run's settings ask for it"
        if self.left:
            self.fault(iteration, name, f"{missing}. {RECORD_ADVICE}")
        else:
            self.end = missing

    def _compare(self, iteration: int, recorded: Keys, work: Work) -> None:
        verdict, detail = Verdict.SAME, ""
        if recorded != work.keys:
            verdict, detail = self._mismatch(recorded, work)
        is_misplaced = verdict is Verdict.DIFFERENT
        if is_misplaced:
            self.fault(iteration, work.name, f"{detail}. {RECORD_ADVICE}", recorded)
        excuse = "" if is_misplaced else detail
        self._visit(Visit(iteration, work.name, work.stage.name, recorded, work, is_misplaced, excuse))

    def _mismatch(self, recorded: Keys, work: Work) -> tuple[Verdict, str]:
        """Explain how the record differs from the expected work, and whether a change of release excuses it."""
        if recorded.keys() != work.keys.keys():
            return Verdict.DIFFERENT, f"it names {_listed(recorded)}, but the stage makes {', '.join(work.keys)}"
        excuses = set()
        for kind, key in recorded.items():
            if key == work.keys[kind]:
                continue
            try:
                manifest = self.store.lasting_manifest(kind, key)
            except StarPOError as error:
                return (
                    Verdict.DIFFERENT,
                    f"it names {kind}/{key}, but its place asks for {kind}/{work.keys[kind]}, and the former cannot be "
                    f"read: {first_line(error)}",
                )
            verdict, detail = mismatch(manifest, work)
            if verdict is Verdict.DIFFERENT:
                return verdict, f"it names {kind}/{key}, and {detail}"
            excuses.add(detail)
        return Verdict.NOT_SHOWN, "; ".join(sorted(excuses))

    def _visit(self, visit: Visit) -> None:
        outputs = tuple(sorted(visit.outputs.items()))
        if outputs not in self._visited_outputs:
            self._visited_outputs.add(outputs)
            self.visits.append(visit)

    def metric(self, iteration: int, name: str) -> float | None:
        """Look up the newest value of a metric; if it cannot be read, infer it from the record, or return None."""
        if self.end:
            return None
        for key in reversed(self._measured[iteration]):
            try:
                values = stored_metrics(self.store, key)
            except StarPOError:
                break
            if name in values:
                return values[name]
        return float("update" in self.recorded.get(iteration, {})) if name == NUM_KEPT else None


def _listed(keys: Mapping[str, str]) -> str:
    return ", ".join(f"{kind}/{key}" for kind, key in keys.items()) or "nothing"
