"""Recording of a run: its record in the store, its state, wandb metrics, Prefect artifacts.

Stages do not depend on runs; this is the only place that assigns names to keys.
"""

import logging
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

from prefect.exceptions import TerminationSignal
from prefect.logging import get_run_logger

from starpo.flows.announcements import Announcements
from starpo.flows.iteration_summary import iteration_line, iteration_markdown
from starpo.flows.training import Runner
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.faults import redacted
from starpo.ragen.evidence.diagnostics.alarm import Alarm
from starpo.ragen.evidence.diagnostics.series import stored_metrics
from starpo.ragen.evidence.report.tracking import Tracker
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.retention import Retention
from starpo.ragen.store.records.runs import StageKeys
from starpo.ragen.work import Keys, Work
from starpo.tasks.progress import RunProgress
from starpo.tasks.stage import stage_task

_TIMED_ITERATIONS = 10
"""Number of recent iterations from which the remaining time is estimated."""


class RunRecorder(Runner):
    """Runner that carries out stages as Prefect tasks and records them under a run's name."""

    progress: RunProgress

    def __init__(
        self, store_url: str, name: str, config: StarPOConfig, stop: int | None = None, start: int = 0
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
        self._retention = Retention(self._store, name, config.checkpoint_every, config.checkpoint_keep_last, start)
        self._log = get_run_logger()
        self._measured: defaultdict[int, dict[str, float]] = defaultdict(dict)
        self._ends: deque[float] = deque(maxlen=_TIMED_ITERATIONS + 1)
        self._announcements = Announcements(name, self._address, self._log)
        self._alarm = Alarm()

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
            code: Identity of its code, from `flows.run_code.code_of`.
            parameters: Further parameters of the flow.
            stop: Updates completed when it ends. None for the number in the settings.
            start: Updates completed when it begins.

        Raises:
            StoreError: If the name is taken by a run with different settings or code; the message lists them.
        """
        Store(store_url).runs.create(
            name, flow=flow, preset=preset, config=config.model_dump(mode="json"), parameters=parameters, code=code
        )
        return cls(store_url, name, config, stop, start)

    def __enter__(self) -> "RunRecorder":
        logging.getLogger("prefect.task_runs").setLevel(logging.WARNING)  # task states already show what has finished
        with ExitStack() as opened:
            opened.enter_context(self._lease)
            self._tracker = Tracker(self.name, self._config.model_dump(mode="json"))
            opened.callback(self._tracker.close)
            self.progress.say("starting", iteration=self._start, iterations=self._stop)
            self._announcements.begin()
            self._log.info("run %s in store %s", self.name, self._store.url)
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
            self.progress.end("completed", "completed")

    def _failed(self, error: BaseException) -> None:
        try:
            self.progress.end("cancelled" if isinstance(error, TerminationSignal) else "failed", _reason(error))
        except StarPOError as unwritten:  # such as an unreachable store, which may be why the run failed
            self._log.warning("the end of run %s could not be recorded: %s", self.name, unwritten)

    def stage(self, iteration: int, work: Work) -> Keys:
        """Carry out one stage and record its outputs."""
        self.progress.say(work.name, fraction=None)
        keys = self.unrecorded(iteration, work)
        self._made(iteration, work.name, keys)
        return keys

    def unrecorded(self, iteration: int, work: Work) -> Keys:
        """Carry out one stage without recording its outputs."""
        return stage_task(work, _title(iteration, work))(self.store_url, work)

    @contextmanager
    def beside(self, iteration: int, work: Work) -> Iterator[Keys]:
        """Carry out one stage in a thread while the block runs; its keys are recorded and filled in after the block.

        If the block fails, rollouts in progress are stopped, so that the run ends without waiting for them.
        """
        from starpo.ragen.placement import stop_playing

        future = stage_task(work, _title(iteration, work)).submit(self.store_url, work)
        keys: Keys = {}
        try:
            yield keys
            self.progress.say(work.name, fraction=None)
            keys |= future.result()
        except BaseException:
            stop_playing()
            raise
        self._made(iteration, work.name, keys)

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        """Record that this iteration uses artifacts of an earlier one (Online-k) or of another run (replay)."""
        self._record(iteration, name, keys)

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

    def retain(self, checkpoints: Sequence[str]) -> None:
        """Drop the checkpoints that the run's settings do not keep, unless another run needs them."""
        for key in self._retention.apply(checkpoints):
            self._log.info("checkpoint %s dropped; `ragen checkpoint %s` says how to rebuild it", key, self.name)

    def training_begins(self) -> None:
        """Start the timer: what came before (warm start, first evaluation) is not used to estimate the time left."""
        self._ends.append(time.monotonic())

    def iteration_done(self, iteration: int, should_summarise: bool = True) -> None:
        """Report the iteration's progress.

        Args:
            iteration: Updates completed before it.
            should_summarise: Also publish a summary as a Prefect artifact.
        """
        self._ends.append(time.monotonic())
        done, total, metrics = iteration + 1, self._stop, self.measured(iteration)
        seconds_each = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        facts = {
            "iteration": done,
            "seconds_left": round(seconds_each * (total - done), 1),
            "success": metrics.get("rollout/success_rate"),
            "reward_std": metrics.get("reward/in_group_std"),
        }
        self.progress.say("update done", **facts)
        self._log.info("%s", iteration_line(iteration, total, metrics, seconds_each))
        summary = None
        if should_summarise:
            stages = self._stages[iteration]
            summary = iteration_markdown(
                self.name, iteration, total, metrics, seconds_each, stages, self._store.url, self._address
            )
        self._announcements.iteration(done, total, summary)
        self._tell_of_collapse(iteration)

    def _tell_of_collapse(self, iteration: int) -> None:
        """Warn if the verdict on the run has worsened."""
        verdict = self._alarm.observe(iteration, self.measured(iteration))
        if self._alarm.has_worsened:
            self.warn(f"iteration {iteration}: {verdict.words}")
            self._announcements.collapse(iteration, verdict.status, verdict.words)

    @cached_property
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

    def measured(self, iteration: int) -> Mapping[str, float]:
        """Return the metrics of an iteration."""
        return self._measured[iteration]

    def _absorb(self, iteration: int, metrics_key: str) -> None:
        values = stored_metrics(self._store, metrics_key)
        self._measured[iteration] |= values
        self._tracker.log(iteration, values)
        panel_success = values.get(f"evaluation/{self._config.environment.type}/success")
        if panel_success is not None:
            self.progress.say("evaluated", evaluation=panel_success, evaluated_at=iteration)


def _title(iteration: int, work: Work) -> str:
    return f"{iteration:03d} {work.stage.name} {work.part}".rstrip()


def _reason(error: BaseException) -> str:
    if isinstance(error, TerminationSignal):
        return "from outside (`ragen cancel`, `ragen down`, or another SIGTERM); the same settings continue it"
    return f"{type(error).__name__}: {error}"
