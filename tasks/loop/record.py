"""Recording of a run: its record in the store, its state, wandb metrics.

Stages do not depend on runs; this is the only place that assigns names to keys.
"""

import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.faults import redacted
from starpo.ragen.learning.control.alarm import Alarm
from starpo.ragen.runs.counting import updates_before
from starpo.ragen.runs.execution import Execution
from starpo.ragen.runs.metrics import stored_metrics
from starpo.ragen.runs.newest_policies import remove_ownerless
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.sizing.architecture import known_architecture
from starpo.ragen.sizing.storage import checkpoint_interval
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.retention import Retention, is_kept
from starpo.ragen.store.records.run import RunStatus
from starpo.ragen.store.records.runs import StageKeys
from starpo.tasks.loop.iteration_summary import iteration_line
from starpo.tasks.loop.runner import Runner
from starpo.tasks.loop.tracking import Tracker
from starpo.tasks.progress import RunProgress

_TIMED_ITERATIONS = 10
"""Number of recent iterations from which the remaining time is estimated."""
_CANCELLED = "from outside (`starpo cancel`, `starpo down`, Ctrl-C or SIGTERM); the same settings continue it"


class RunRecorder(Runner):
    """Runner that carries out stages, as its execution does, and records them under a run's name."""

    progress: RunProgress

    def __init__(
        self,
        store_url: str,
        name: str,
        config: StarPOConfig,
        execution: Execution,
        stop: int | None = None,
        start: int = 0,
    ) -> None:
        self.name = name
        self.store_url = store_url
        self.progress = RunProgress(store_url, name)
        self._config = config
        self._start, self._stop = start, config.iterations if stop is None else stop
        self._store = Store(store_url)
        self._lease = self._store.runs.hold(name)
        self._tracker: Tracker  # opened on entering, by the one process that works on the run
        self._opened: ExitStack
        self._stages: defaultdict[int, StageKeys] = defaultdict(dict)
        every = self._checkpoint_interval = checkpoint_interval(config, known_architecture(config))
        should_lose = config.checkpoint_every is not None
        self._retention = Retention(self._store, name, every, should_lose, start)
        self._execution, self._log = execution, execution.log
        self._measured: defaultdict[int, dict[str, float]] = defaultdict(dict)
        self._ends: deque[float] = deque(maxlen=_TIMED_ITERATIONS + 1)
        self._last_recorded = -1  # iteration, when the process began
        self._alarm = Alarm()
        self._begun_at = time.monotonic()

    @classmethod
    def open(
        cls,
        store_url: str,
        name: str,
        *,
        flow: str,
        preset: str,
        config: StarPOConfig,
        code: Mapping[str, str],
        execution: Execution,
        parameters: Mapping[str, Any] | None = None,
        stop: int | None = None,
        start: int = 0,
    ) -> "RunRecorder":
        """Begin a run, or continue the one with this name, configuration and code.

        Args:
            store_url: URL of the store.
            name: The run's name.
            flow: Name of the flow.
            preset: Label of the settings.
            config: The settings.
            code: Identity of its code, from `tasks.loop.run_code.code_of`.
            execution: Carries out its stages.
            parameters: Further parameters of the flow.
            stop: Updates completed when it ends. None for the number in the settings.
            start: Updates completed when it begins.

        Raises:
            StoreError: If the name is taken by a run with different settings or code; the message lists them.
        """
        Store(store_url).runs.create(
            name, flow=flow, preset=preset, config=config.model_dump(mode="json"), parameters=parameters, code=code
        )
        return cls(store_url, name, config, execution, stop, start)

    def __enter__(self) -> "RunRecorder":
        with ExitStack() as opened:
            opened.enter_context(self._lease)
            self._begun_at = time.monotonic() - self._seconds_before()
            self._last_recorded = max(self._store.runs.stamps(self.name), default=-1)
            remove_ownerless()
            self._tracker = Tracker(self.name, self._config.model_dump(mode="json"))
            opened.callback(self._tracker.close)
            self.progress.say("starting", iteration=self._start, iterations=self._stop)
            self._execution.begin(self.name, self._address, self._store.address)
            self._log.info("run %s in store %s", self.name, self._store.url)
            if self._checkpoint_interval > 1:
                every = self._checkpoint_interval
                self._log.info(
                    "of its checkpoints, the first, every %dth and the last are kept (checkpoint_every); others are "
                    "derived when needed, and a crash repeats at most %d updates",
                    *(every, every - 1),
                )
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._opened:
            if self._lease.is_lost:  # another process has taken over the run and its state
                self.progress.abandon()
                return
            if error is not None:
                safe = redacted(error)
                self._failed(safe)
                if safe is not error:
                    raise safe from None
                return
            self.progress.end("completed", "completed", seconds=self._seconds)

    def _failed(self, error: BaseException) -> None:
        is_cancelled = isinstance(error, self._execution.cancellations)
        status: RunStatus = "cancelled" if is_cancelled else "failed"
        try:
            self.progress.end(status, _CANCELLED if is_cancelled else _reason(error), seconds=self._seconds)
        except StarPOError as unwritten:  # such as an unreachable store, which may be why the run failed
            self._log.warning("the end of run %s could not be recorded: %s", self.name, unwritten)

    def stage(self, iteration: int, work: Work) -> Keys:
        """Carry out one stage and record its outputs."""
        self.progress.say(_activity(work))
        keys = self.unrecorded(iteration, work)
        self._made(iteration, work.name, keys)
        return keys

    def unrecorded(self, iteration: int, work: Work) -> Keys:
        """Carry out one stage without recording its outputs."""
        return self._execution.carry_out(self.store_url, work, _title(iteration, work))

    @contextmanager
    def concurrently(self, iteration: int, work: Work) -> Iterator[Keys]:
        """Carry out one stage in a thread while the block runs; its keys are recorded and filled in after the block.

        If the block fails, rollouts in progress are stopped, so that the run ends without waiting for them.
        """
        pending = self._execution.submit(self.store_url, work, _title(iteration, work))
        keys: Keys = {}
        try:
            yield keys
            self.progress.say(_activity(work))
            keys |= pending.result()
        except BaseException:
            self._execution.placement.players.stop()
            raise
        self._made(iteration, work.name, keys)

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        """Record that this iteration uses artifacts of an earlier one (Online-k) or of another run (replay)."""
        self._record(iteration, name, keys)

    def check_teacher(self, first: str, teacher: str, name: str) -> None:
        """Check that a teacher has the vocabulary of the run's first checkpoint, by their keys."""
        from starpo.ragen.agents.policy.load import load_tokenizer
        from starpo.ragen.learning.distillation.vocabulary import check_vocabulary

        folder = self._execution.placement.learner.policy_folder
        policy_ids, teacher_ids = (load_tokenizer(folder(self._store, key)).get_vocab() for key in (first, teacher))
        check_vocabulary(policy_ids, teacher_ids, name)

    def tell(self, message: str) -> None:
        """Log a message at level info."""
        self._log.info(message)

    def warn(self, message: str) -> None:
        """Log a warning."""
        self._log.warning(message)

    def note(self, iteration: int, values: Mapping[str, float]) -> None:
        """Report metrics that no stage measures, as they follow from stored data."""
        self._measured[iteration] |= values
        self._tracker.log(iteration, dict(values))

    def is_kept(self, number: int) -> bool:
        """Whether the run keeps the checkpoint of this number, by its settings or as its last one."""
        return is_kept(number, self._stop, self._checkpoint_interval)

    def retain(self, checkpoints: Sequence[str]) -> None:
        """Drop the checkpoints that the run's settings do not keep, unless another run has them too.

        One that was recorded, never written, and is passed on to a number that is kept, is brought back.
        """
        for key in self._retention.apply(checkpoints):
            self._log.info("checkpoint %s dropped; `starpo checkpoint %s` says how to rebuild it", key, self.name)
        is_passed_on = checkpoints[-1] in checkpoints[:-1] and self.is_kept(len(checkpoints) - 1)
        if is_passed_on and self._store.dropped("checkpoint", checkpoints[-1]):
            self._execution.placement.learner.bring_back(self._store, checkpoints[-1])

    def training_begins(self) -> None:
        """Start the timer: what came before (warm start, first evaluation) is not used to estimate the time left."""
        self._ends.append(time.monotonic())

    def iteration_done(self, iteration: int) -> None:
        """Report the iteration's progress."""
        if iteration <= self._last_recorded + 1:  # those before were stored, and took no time
            self._ends = deque([self._ends[-1]], self._ends.maxlen)
        self._ends.append(time.monotonic())
        num_iterations, total, metrics = iteration + 1, self._stop, self._measured[iteration]
        seconds_each = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        seconds_left = round(seconds_each * (total - num_iterations), 1)
        facts = {
            "iteration": num_iterations,
            "seconds_left": seconds_left if iteration > self._last_recorded else None,
            "success": metrics.get("rollout/success_rate"),
            "reward_std": metrics.get("reward/in_group_std"),
            "format_ok": metrics.get("rollout/format_ok"),
            "updates": self._num_updates(num_iterations),
            "seconds": self._seconds,
        }
        self.progress.say("iteration done", **facts)
        self._log.info("%s", iteration_line(iteration, total, metrics, seconds_each))
        self._tell_of_collapse(iteration)

    def _tell_of_collapse(self, iteration: int) -> None:
        """Warn if the verdict on the run has worsened, and say in its state why it learns nothing, if so."""
        verdict = self._alarm.observe(iteration, self._measured[iteration])
        self.progress.warn(verdict.standstill)
        if self._alarm.has_worsened:
            self.warn(f"iteration {iteration}: {verdict.words}")
            self._execution.announce_collapse(self.name, iteration, verdict.status, verdict.words)

    @property
    def _address(self) -> str:
        """URL of the run's folder, for a browser."""
        place = f"{self._store.url}/runs/{self.name}"
        return place if "://" in place else Path(place).resolve().as_uri()

    def _made(self, iteration: int, name: str, keys: Keys) -> None:
        self._record(iteration, name, keys)
        if "metrics" in keys:
            self._absorb(iteration, keys["metrics"])

    def _record(self, iteration: int, name: str, keys: Keys) -> None:
        """Record keys under a stage's name, once their artifacts are stored."""
        self._lease.check()
        self._store.runs.record_stage(self.name, iteration, name, keys)
        self._stages[iteration][name] = dict(keys)  # a copy: callers may extend theirs

    def metric(self, iteration: int, name: str) -> float | None:
        """Return a metric of an iteration; None if it is not measured."""
        return self._measured[iteration].get(name)

    def _absorb(self, iteration: int, metrics_key: str) -> None:
        values = stored_metrics(self._store, metrics_key)
        self._measured[iteration] |= values
        self._tracker.log(iteration, values)
        panel_success = values.get(f"evaluation/{self._config.environment.type}/success")
        if panel_success is not None:
            facts = {"evaluated_at": iteration, "evaluated_after": self._num_updates(iteration)}
            self.progress.say("evaluated", evaluation=panel_success, **facts)
            self._execution.show_success(self.name, self._config.environment.type, self._measured)

    def _num_updates(self, before: int) -> int:
        stages = ((iteration, stage) for iteration, stages in self._stages.items() for stage in stages)
        return updates_before(stages, before)

    @property
    def _seconds(self) -> float:
        """Seconds that processes have worked on the run, this one and earlier ones."""
        return round(time.monotonic() - self._begun_at, 1)

    def _seconds_before(self) -> float:
        try:
            state = self._store.runs.state(self.name)
        except StarPOError:  # damaged; it is written anew
            return 0.0
        return state.metrics.get("seconds", 0.0) if state else 0.0


def _activity(work: Work) -> str:
    """Return what the run does meanwhile, for its state: the stage's name, or `fine-tuning`."""
    policy = work.settings.get("policy", {}) if work.stage.name == "warm_start" else {}
    return "fine-tuning" if policy.get("fine_tuning") else work.name


def _title(iteration: int, work: Work) -> str:
    return f"{iteration:03d} {work.stage.name} {work.part}".rstrip()


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
