"""A run killed by SIGKILL throughout, and restarted each time: nothing is half-written, and the result is the same.

Each kill aims at a place in the run: the making of the n-th artifact, with n rising evenly from the first to the last.
Kills come in four ways, in a seeded order and at seeded points: at a moment in the store (before, during or after a
file is written, renamed or removed, see `mortal_runs.py`); at a moment inside a file; while a stage computes; or while
the run restarts and skips what is stored.
"""

import contextlib
import fcntl
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL

from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import checkpoint_keys
from starpo.ragen.store.keeping.retention import kept_numbers
from starpo.ragen.store.remote.committing import DROPPED_NAME
from starpo.schemas.manifest import MANIFEST_NAME, Manifest
from tests.integration.run_digests import Digests, digests

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(900)]

FEW = {"any": 1, "inside": 1, "computing": 1, "starting": 1}
SOME = {"any": 4, "inside": 4, "computing": 6, "starting": 1}
MANY = {"any": 8, "inside": 8, "computing": 6, "starting": 3}
HUNDRED = {"any": 32, "inside": 32, "computing": 24, "starting": 12}
"""Number of kills of each sort."""
SMALL = {"policy.demonstration_turns": 500, "policy.warm_start_steps": 30, "filter.should_drop_zero_variance": False}
"""Settings of a run whose warm start, which kills repeat, is short, and that updates all the same."""
SPARSE = {**SMALL, "iterations": 4, "checkpoint_every": 3}
"""Settings of a run that does not keep every checkpoint."""
LARGE = {
    "iterations": 13, "checkpoint_every": 10, "evaluation.every": 6, "evaluation.num_prompts": 2,
    "policy.hidden_size": 512, "policy.num_layers": 12, "policy.intermediate_size": 2048,
    "policy.demonstration_turns": 8, "policy.warm_start_steps": 1, "policy.warm_start_batch_size": 1,
    "rollout.num_groups": 1, "rollout.group_size": 2, "rollout.max_response_tokens": 30, "agent.max_turns": 1,
    "filter.strategy": "none", "filter.should_drop_zero_variance": False,
    "update.num_minibatches": 1, "update.optimiser.type": "adamw",
}  # fmt: skip
"""Settings of a run of 47M parameters that plays little, so that most of its time goes into checkpoints."""
VISUAL = {"policy.patch_size": 32, "agent.observation": "image", "evaluation.variants": {}}
"""Settings of runs whose prompts show images."""
LAST_MOMENT = {"any": 8, "inside": 2}
"""Minimum number of moments per artifact, by sort."""
SEED = 20
TAUGHT = {
    **SMALL, "teacher.type": "policy", "teacher.hint": "plan", "update.distillation_coefficient": 0.5,
}  # fmt: skip
"""Settings of a run with a teacher."""
RUN = "mortal"
ROOT = Path(__file__).parents[2]
Answer = dict[str, Any]


class Mortals:
    """Process that forks runs (`mortal_runs.py`).

    Attributes:
        overrides: Settings of the next runs.
    """

    def __init__(self) -> None:
        self.overrides: dict[str, Any] = {}
        environment = {
            "PREFECT_API_URL": PREFECT_API_URL.value() or "",
            "PYTHONPATH": str(ROOT),
            "STARPO_THREADS": "1",  # no worker processes: at every restart, new ones would have to import torch
        }
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("mortal_runs.py"))],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answers: queue.Queue[Answer] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        assert self._answers.get(timeout=200) == {"is_ready": True}

    def run(
        self,
        store: Path,
        after: int = 0,
        fatal: dict[str, int] | None = None,
        wait_s: dict[str, float] | None = None,
        event: str = "begun",
    ) -> Answer:
        """Start a run and wait for its end.

        Args:
            store: Folder of its store.
            after: Number of artifacts from which moments and starts of stages count.
            fatal: Sort of moment -> number of the moment at which the run kills itself.
            wait_s: Key of a stage -> seconds from its start until the run is killed; "" -> seconds from the run start.
            event: Event at which the wait begins: 'begun', a stage starts to compute, or 'process', the run starts.

        Returns:
            Everything that was reported: the exit `status`, how it `died` if it was killed, and so on.
        """
        assert self._process.stdin is not None
        order = {"store": str(store), "overrides": self.overrides, "after": after, "fatal": fatal or {}}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        report: Answer = {}
        deadline = None
        while "status" not in report:
            try:
                answer = self._answers.get(timeout=300 if deadline is None else max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                assert deadline is not None, "the run does not end"
                os.kill(report["process"], signal.SIGKILL)
                report["died"] = "killed from outside"
                deadline = None
                continue
            if wait_s and event in answer and "died" not in report and deadline is None:
                deadline = time.monotonic() + wait_s.get(answer.get("key", ""), 0.0)
            report |= answer
        assert "error" not in report, report["error"]
        return report

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))


@pytest.fixture(scope="module")
def overrides() -> dict[str, Any]:
    """Settings of the runs, unless the test is parametrized with others."""
    return {}


@pytest.fixture(scope="module")
def forker(prefect_server: None) -> Iterator[Mortals]:
    process = Mortals()
    yield process
    process.close()


@pytest.fixture(scope="module")
def mortals(forker: Mortals, overrides: dict[str, Any]) -> Mortals:
    forker.overrides = overrides
    return forker


@dataclass(frozen=True)
class Reference:
    """Undisturbed run: its digests, the duration of its stages, and that of a restart that finds everything stored."""

    digests: Digests
    num_artifacts: int
    stage_s: dict[str, float]
    start_s: float


@pytest.fixture(scope="module")
def reference(mortals: Mortals, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("reference") / "store"
    assert mortals.run(folder)["status"] == 0
    started = time.monotonic()
    assert mortals.run(folder)["status"] == 0
    start_s = time.monotonic() - started
    manifests = [Manifest.model_validate_json(path.read_bytes()) for path in visible_artifacts(folder)]
    stage_s: dict[str, float] = {}
    for manifest in manifests:
        stage_s[manifest.key] = max(stage_s.get(manifest.key, 0.0), manifest.provenance["seconds"])
    return Reference(digests(Store(str(folder)), RUN), len(manifests), stage_s, start_s)


def visible_artifacts(folder: Path) -> dict[Path, int]:
    """Return manifest file -> modification time (ns), also of dropped artifacts. Fails if anything that readers see is
    half-written."""
    times = {}
    for place in folder.glob("*/*"):
        if place.parent.name in ("tmp", "runs"):
            continue
        is_dropped = not (place / MANIFEST_NAME).exists()
        file = place / (DROPPED_NAME if is_dropped else MANIFEST_NAME)
        manifest = Manifest.model_validate_json(file.read_bytes())
        assert manifest.is_intact, place
        assert (manifest.kind, manifest.key) == (place.parent.name, place.name)
        files = () if is_dropped else manifest.files
        assert {file.name for file in place.iterdir()} == {file.name, *(entry.name for entry in files)}
        for entry in files:
            assert sha256((place / entry.path).read_bytes()).hexdigest() == entry.sha256, place / entry.path
        times[file] = file.stat().st_mtime_ns
    for file in folder.glob(f"runs/{RUN}/*.json"):
        if not file.name.startswith("."):
            json.loads(file.read_bytes())
    for stages in Store(str(folder)).runs.iterations(RUN).values():
        for keys in stages.values():
            assert all(Store(str(folder)).was_made(kind, key) for kind, key in keys.items())
    return times


def doing(folder: Path) -> str:
    """Return what a killed run was doing, from its last message."""
    state = folder / "runs" / RUN / "state.json"
    return str(json.loads(state.read_bytes())["message"]) if state.is_file() else "nothing yet"


def ownerless_policies() -> list[Path]:
    """Return folders with policies of processes that have ended."""
    folders = []
    for lock in Path("/dev/shm").glob("starpo-policies-*/lock"):
        with lock.open() as stream, contextlib.suppress(BlockingIOError):
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folders.append(lock.parent)
    return folders


def assert_only_kept_are_stored(store: Store, overrides: dict[str, Any]) -> None:
    keys = checkpoint_keys(store.runs.iterations(RUN))
    every = overrides.get("checkpoint_every", 1)
    assert [n for n in keys if store.has("checkpoint", keys[n])] == kept_numbers(max(keys), every)


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        pytest.param(SMALL, FEW, marks=pytest.mark.thorough),
        (SPARSE, FEW),
        pytest.param(VISUAL, FEW, marks=pytest.mark.thorough),
        pytest.param(TAUGHT, SOME, marks=pytest.mark.thorough),
        pytest.param({}, MANY, marks=pytest.mark.thorough),
        pytest.param(LARGE, HUNDRED, marks=[pytest.mark.slow, pytest.mark.timeout(7200)]),
    ],
    ids=["4", "4-sparse", "4-visual", "15-taught", "25", "100-large"],
    scope="module",
)
def test_killed_run_ends_as_undisturbed(
    mortals: Mortals, reference: Reference, tmp_path: Path, overrides: dict[str, Any], wanted: dict[str, int]
) -> None:
    chance = random.Random(SEED)
    sorts = [sort for sort, number in wanted.items() for _ in range(number)]
    chance.shuffle(sorts)
    deaths: list[tuple[str, str]] = []
    survivors: dict[Path, int] = {}
    num_ends, folder, started = 0, tmp_path / "0", time.monotonic()
    for _ in range(2 * len(sorts)):
        after = len(deaths) * reference.num_artifacts // len(sorts)
        sort = sorts[len(deaths)] if len(deaths) < len(sorts) else "none"
        if sort == "none":
            report = mortals.run(folder)
        elif sort == "starting":
            report = mortals.run(folder, wait_s={"": chance.uniform(0.0, reference.start_s)}, event="process")
        elif sort == "computing":
            share = chance.random()
            report = mortals.run(folder, after, wait_s={key: share * s for key, s in reference.stage_s.items()})
        else:
            report = mortals.run(folder, after, fatal={sort: chance.randint(1, LAST_MOMENT[sort])})
        survivors |= visible_artifacts(folder)
        if report["status"] == -signal.SIGKILL:
            deaths.append((f"{sort}: {report['died']}", doing(folder).partition(":")[0]))
            continue
        assert report["status"] == 0
        assert digests(Store(str(folder)), RUN) == reference.digests
        assert {path: path.stat().st_mtime_ns for path in survivors} == survivors, "something stored was written again"
        num_ends += 1
        assert_only_kept_are_stored(Store(str(folder)), overrides)
        assert not ownerless_policies()
        if len(deaths) == len(sorts):
            break
        folder, survivors = tmp_path / str(num_ends), {}
    phases = Counter(phase for _, phase in deaths)
    print(f"\n{len(deaths)} deaths, {num_ends} ends, in {time.monotonic() - started:.0f} s")
    print(f"how: {dict(Counter(how for how, _ in deaths))}\nwhile: {dict(phases)}")
    assert len(deaths) == len(sorts)
    assert num_ends >= 1
    assert Counter(how.partition(":")[0] for how, _ in deaths) == wanted
    died_in = {phase.partition(" ")[0] for phase in phases}  # `update done` is reported between stages
    assert len(died_in) >= 2, "they are not spread over the run"
    if overrides is TAUGHT:
        assert "teacher" in died_in
    if wanted is MANY:
        assert died_in >= {"warm_start", "update", "evaluate"}, "they are not spread over the run"
        assert died_in & {"rollout", "reward", "variance_filter", "diagnose", "probe"}, "nor over short stages"
