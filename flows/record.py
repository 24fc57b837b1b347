"""What a run leaves behind for people: its record in the store, its state, wandb metrics, Prefect artifacts.

Stages do not know of runs; this is the only place that puts names on keys.
"""

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    update_progress_artifact,
)
from prefect.logging import get_run_logger

from flows.summary import iteration_markdown
from ragen.config.starpo import StarPOConfig
from ragen.report.tracking import Tracker
from ragen.store import Store
from tasks.progress import RunProgress
from tasks.stage import Keys

_TIMED_ITERATIONS = 10
"""The time left is judged by this many iterations before."""


class RunRecorder:
    """Runs stages in the name of a run.

    Attributes:
        name: The run's name.
        store_url: The store.
        progress: Where stages say how far they are.
        metrics: The newest value of every metric.
    """

    def __init__(self, store_url: str, name: str, config: StarPOConfig) -> None:
        self.name = name
        self.store_url = store_url
        self.progress = RunProgress(store_url, name)
        self._config = config
        self._store = Store(store_url)
        self._tracker = Tracker(name, config.model_dump(mode="json"))
        self._log = get_run_logger()
        self.metrics: dict[str, float] = {}
        self._ends: deque[float] = deque(maxlen=_TIMED_ITERATIONS + 1)
        self._progress_artifact: Any = None

    @classmethod
    def open(cls, store_url: str, name: str | None, *, flow: str, preset: str, config: StarPOConfig) -> "RunRecorder":
        """Begin a run, or continue the one of this name and configuration.

        Raises:
            StoreError: If the name is taken by a run with other settings; the message names them.
        """
        name = name or default_run_name(preset, config)
        Store(store_url).runs.create(name, flow=flow, preset=preset, config=config.model_dump(mode="json"))
        return cls(store_url, name, config)

    def __enter__(self) -> "RunRecorder":
        self.progress.say("starting", iteration=0, iterations=self._config.iterations)
        self._progress_artifact = create_progress_artifact(0.0, description=f"run {self.name}")
        self._log.info("run %s in store %s", self.name, self._store.url)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.progress.end("completed", "completed")
        else:
            self.progress.end("failed", f"{type(error).__name__}: {error}")
        self._tracker.close()

    def stage(self, iteration: int, name: str, task: Callable[..., Keys], /, *args: Any, **kwargs: Any) -> Keys:
        """Run one stage and write down what it made."""
        self.progress.say(name, fraction=None)
        keys = task(*args, **kwargs)
        self._store.runs.record_stage(self.name, iteration, name, keys)
        if "metrics" in keys:
            self._absorb(iteration, keys["metrics"])
        return keys

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        """Write down that this iteration uses an earlier iteration's artifacts (Online-k)."""
        self._store.runs.record_stage(self.name, iteration, name, keys)

    def warn(self, message: str) -> None:
        """Say something that should not go unseen."""
        self._log.warning(message)

    def training_begins(self) -> None:
        """What came before (warm start, first evaluation) says nothing about the time left."""
        self._ends.append(time.monotonic())

    def iteration_done(self, iteration: int) -> None:
        """Tell people how it goes."""
        self._ends.append(time.monotonic())
        done, total = iteration + 1, self._config.iterations
        seconds_each = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        facts = {
            "iteration": done,
            "seconds_left": round(seconds_each * (total - done), 1),
            **{
                name: self.metrics.get(metric)
                for name, metric in {
                    "success": "rollout/success_rate",
                    "reward_std": "reward/in_group_std",
                    "evaluation": f"evaluation/{self._config.environment.type}/success",
                }.items()
            },
        }
        self.progress.say("update done", **facts)
        markdown = iteration_markdown(self.name, iteration, total, self.metrics, self._store)
        key = _artifact_key(self.name)
        create_markdown_artifact(markdown, key=key, description=f"{self.name}, iteration {done}")
        create_link_artifact(self._where(iteration), key=f"{key}-files", description="keys of its artifacts")
        update_progress_artifact(self._progress_artifact, 100.0 * done / total)

    def _where(self, iteration: int) -> str:
        """Address of the iteration's record, as a browser takes it."""
        place = f"{self._store.url}/runs/{self.name}/iterations/{iteration:05d}.json"
        return place if "://" in place else Path(place).resolve().as_uri()

    def _absorb(self, iteration: int, metrics_key: str) -> None:
        table = self._store.read_table("metrics", metrics_key)
        values = dict(zip(table["name"].to_pylist(), table["value"].to_pylist(), strict=True))
        self.metrics |= values
        self._tracker.log(iteration, values)


def default_run_name(preset: str, config: StarPOConfig) -> str:
    """Preset, seed, and eight digits of the settings: the same settings continue the same run."""
    settings = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    return f"{preset}-s{config.seed}-{hashlib.sha256(settings.encode()).hexdigest()[:8]}"


def _artifact_key(name: str) -> str:
    """Prefect allows lower-case letters, digits and dashes."""
    return "run-" + "".join(c if c.isalnum() and c.isascii() else "-" for c in name.lower())
