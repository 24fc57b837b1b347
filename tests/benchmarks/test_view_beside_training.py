"""What a page costs while a run trains: memory of its server over minutes, and the time that it takes from training.

pytest -m benchmark tests/benchmarks/test_view_beside_training.py -s
"""

import json
import statistics
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import starpo
from starpo.ragen.store import Store
from tests.benchmarks.test_view import lengthen, served

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]
SETTINGS = {"evaluation.num_prompts": 16}
MINUTES = 4
NUM_ITERATIONS = 100
NUM_PAIRS = 3


def ask(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return answer.read()


def follow(url: str, run: str, is_over: threading.Event) -> None:
    """Ask as a page that follows a run does (`live.js`): its state, and what a stage has added."""
    version, last = "", 0
    while not is_over.wait(1.5):
        try:
            status = json.loads(ask(f"{url}run/{run}/status"))
            if status["version"] != version:
                data = json.loads(ask(f"{url}run/{run}/data?since={max(0, last - 2)}"))
                version, last = data["version"], data["last_iteration"]
        except urllib.error.HTTPError:  # it has not begun yet
            continue


def test_memory_over_minutes(tmp_path: Path) -> None:
    """A store that gets an iteration every two seconds or so, and a server that is asked all the time."""
    played = starpo.train("smoke", SETTINGS | {"iterations": 1}, store=tmp_path / "played", run="played", quiet=True)
    store = Store(str(tmp_path / "store"))
    lengthen(played.store, store, NUM_ITERATIONS)
    whole = store.runs.iterations(f"of-{NUM_ITERATIONS}")
    store.runs.create("grows", flow="starpo", preset="smoke", config=store.runs.get(f"of-{NUM_ITERATIONS}").config)
    with served(store.url, tmp_path) as (url, server):
        begun, num_asked = time.monotonic(), 0
        while (seconds := time.monotonic() - begun) < 60 * MINUTES:
            due = int(seconds / (60 * MINUTES) * NUM_ITERATIONS)
            for iteration in range(max(store.runs.iterations("grows"), default=-1) + 1, due + 1):
                for stage, keys in whole[iteration].items():
                    store.runs.record_stage("grows", iteration, stage, keys)
                print(f"{iteration:4} iterations, {server.memory_info().rss / 2**20:.0f} MB, {num_asked} requests")
            rollout, panel = f"iteration={due // 2}", f"iteration={due // 10 * 10}&source=sokoban"
            pages = ["/status", "/data?since=0", "/panels", "/search?text=Up", ""]
            for path in (*pages, f"/trajectories?{rollout}", f"/trajectories?{panel}"):
                ask(f"{url}run/grows{path}")
                num_asked += 1


def test_training_beside_requests(tmp_path: Path) -> None:
    """Of a page alone, as its script makes them: what the server takes, and how much longer a run takes."""
    store = Store(str(tmp_path / "store"))
    starpo.train("smoke", SETTINGS, store=store.url, run="first", quiet=True)
    with served(store.url, tmp_path) as (url, server):

        def played(number: int, is_followed: bool) -> None:
            run, is_over = f"run-{number}", threading.Event()
            page = threading.Thread(target=follow, args=(url, run, is_over))
            if is_followed:
                page.start()
            again = {"iterations": 12, "rollout.temperature": 1.1 + number / 1000}  # the warm start is found
            starpo.train("smoke", SETTINGS | again, store=store.url, run=run, quiet=True)
            is_over.set()
            if is_followed:
                page.join()

        compare(played, server, NUM_PAIRS)


def test_training_beside_browser(tmp_path: Path, chromium: Any) -> None:
    """That opens the page of a run of 768 trajectories an iteration, and draws it on the same cores."""
    store = Store(str(tmp_path / "store"))
    settings: dict[str, Any] = {"evaluation.variants": {}}
    starpo.train("sokoban", settings | {"iterations": 1}, store=store.url, run="first", quiet=True)
    with served(store.url, tmp_path) as (url, server):

        def look(run: str) -> None:
            while True:
                with suppress(urllib.error.HTTPError):  # it has not begun yet
                    ask(f"{url}run/{run}/status")
                    return chromium.get(f"{url}run/{run}")
                time.sleep(0.5)

        def played(number: int, is_followed: bool) -> None:
            page = threading.Thread(target=look, args=(f"run-{number}",))
            chromium.get("about:blank")
            if is_followed:
                page.start()
            again = {"iterations": 30, "rollout.temperature": 1.1 + number / 1000}
            starpo.train("sokoban", settings | again, store=store.url, run=f"run-{number}", quiet=True)
            if is_followed:
                page.join()

        compare(played, server, 2)


def compare(played: Callable[[int, bool], None], server: psutil.Process, num_pairs: int) -> None:
    """Play runs with and without a page that follows them, in turn, and print how long each takes."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    shares: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * num_pairs):
        is_followed = number % 4 in (1, 2)
        begun, before = time.monotonic(), sum(server.cpu_times()[:2])
        played(number, is_followed)
        seconds[is_followed].append(time.monotonic() - begun)
        shares[is_followed].append((sum(server.cpu_times()[:2]) - before) / seconds[is_followed][-1])
        print(f"{'followed' if is_followed else 'alone'}: {seconds[is_followed][-1]:.1f} s")
    for is_followed, name in ((False, "alone"), (True, "followed")):
        print(f"{name}: the server takes {100 * statistics.median(shares[is_followed]):.1f}% of a core")
    ratios = [followed / alone for followed, alone in zip(seconds[True], seconds[False], strict=True)]
    print(f"followed / alone: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")
