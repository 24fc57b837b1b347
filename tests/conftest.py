"""Setup and fixtures of all tests: one thread per process, no network, no files outside the test's own folders."""

import gc
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from starpo.ragen.store import Store

TESTS = Path(__file__).parent
OF_CI = ("integration", "infra", "compatibility")
"""Folders whose tests are CI's alone."""
OF_OTHER_TIERS = re.compile(r"^pytestmark = .*mark\.(ci|gpu|slow|benchmark|thorough)\b", re.MULTILINE)
"""Marks all tests of a file."""
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["STARPO_WANDB_MODE"] = "disabled"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["DO_NOT_TRACK"] = "1"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
os.environ["PREFECT_LOGGING_TO_API_ENABLED"] = "false"

# No deadline, since shared machines can pause a test. CI draws the same examples every time, so that a failure is due
# to the change and not to chance. Elsewhere the examples differ and may find new failures.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add a flag that rewrites the golden files; the diff is to be reviewed."""
    parser.addoption("--regenerate-golden", action="store_true", help="write what is found into tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    """Run files that are named, whatever their tier; let waiting OpenMP threads sleep instead of spin.

    The latter not in benchmarks, which measure what users get. Some stages compute with two threads regardless of
    OMP_NUM_THREADS. When three test processes share two cores, a thread that waits for another spins on the core which
    that one needs. Spinning took four fifths of the processor time of a small policy's warm start.
    """
    if any(argument.split("::")[0].endswith(".py") for argument in config.args):
        config.option.markexpr = config.option.markexpr.replace("not ci and ", "")
    if "benchmark" not in config.option.markexpr.replace("not benchmark", ""):
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only files with tests of the tier, as every worker imports them all: with `-m "ci and ..."` those that
    name the marker, with `-m "not ci and ..."` those that are not as a whole of another tier."""
    if not collection_path.name.startswith("test_"):
        return None
    if config.option.markexpr.startswith("ci and "):
        is_of_ci = collection_path.relative_to(TESTS).parts[0] in OF_CI or "mark.ci" in collection_path.read_text()
        return None if is_of_ci else True
    if config.option.markexpr.startswith("not ci and "):
        return True if OF_OTHER_TIERS.search(collection_path.read_text()) else None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[object]:
    """Seek no garbage while files are imported, nor later among what they made, most of which lasts."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let the end of the process find everything: DuckDB complains of what is left."""
    gc.unfreeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the folders whose tests are CI's alone, and begin with them and with single long files: the last tests are
    then short, so that no worker waits for another."""
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in OF_CI:
            item.add_marker(pytest.mark.ci)
    items.sort(key=lambda item: item.path.relative_to(TESTS).parts[0] not in OF_CI and item.path.parent != TESTS)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need a CUDA device when there is none, whatever `-m` selects."""
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("there is no CUDA device")


@pytest.fixture(scope="session")
def vllm_interpreter() -> str:
    """Python interpreter of the environment with vLLM (`make vllm`); skips tests if it is missing."""
    from starpo.ragen.config.vllm_engine import VLLMEngineConfig
    from starpo.ragen.core.errors import MissingPackageError

    try:
        return VLLMEngineConfig().python()
    except MissingPackageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Headless browser, driven by selenium; skips tests if it is missing."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (pip install selenium)")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("no headless browser is installed (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def ray_shut_down() -> Iterator[None]:
    """Shut down Ray at the end of the module."""
    yield
    import ray

    ray.shutdown()


@pytest.fixture
def store(tmp_path: Path) -> "Store":
    """Empty store in the test's own folder."""
    from starpo.ragen.store import Store

    return Store(str(tmp_path / "store"))


@pytest.fixture
def nothing_verified_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process forget which files it has verified, as if it had hashed none yet."""
    from starpo.ragen.store.artifacts import reading

    monkeypatch.setattr(reading, "_VERIFIED", set())


@pytest.fixture
def make_run() -> Callable[..., list[tuple[str, str]]]:
    """Function that stores a run as training does, without training: `make_run(store, name, iterations=2, keep=0.5)`.

    Every stage has its own artifacts with real keys, linked through their inputs. Runs that differ in `keep` share the
    first checkpoint, rollout and rewards. The function returns the (kind, key) of every artifact in the run's records.
    """
    return _make_run


def _make_run(store: "Store", name: str, iterations: int = 2, keep: float = 0.5) -> list[tuple[str, str]]:
    from starpo.ragen.store import Facts
    from starpo.ragen.store.artifacts.keys import stage_key
    from starpo.schemas.manifest import Stage
    from tests.examples import example, put_folder

    made: list[tuple[str, str]] = []

    def put(iteration: int, stage: str, settings: dict[str, Any], inputs: dict[str, str], *kinds: str) -> str:
        made_by = Stage(name=stage, version=1)
        key = stage_key(made_by, settings, inputs, 0)
        facts = Facts(key=key, stage=made_by, settings=settings, inputs=inputs, seed=0)
        for kind in kinds:
            if kind != "checkpoint":
                store.put_table(kind, example(kind), facts)
                continue
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "deep").mkdir()
                Path(folder, "deep", "config.json").write_text(f"{stage} {iteration}")
                Path(folder, "model.safetensors").write_bytes(key.encode() * 100)
                put_folder(store, kind, folder, facts)
        store.runs.record_stage(name, iteration, stage, dict.fromkeys(kinds, key))
        made.extend((kind, key) for kind in kinds)
        return key

    store.runs.create(name, flow="starpo", preset="smoke", config={"environment": {"type": "sokoban"}, "keep": keep})
    first = checkpoint = put(0, "warm_start", {}, {}, "checkpoint")
    for number in range(iterations):
        turns = put(number, "rollout", {"iteration": number}, {"checkpoint": checkpoint}, "turns")
        rewards = put(number, "reward", {}, {"turns": turns}, "rewards")
        selection = put(number, "variance_filter", {"keep": keep}, {"turns": turns, "rewards": rewards}, "selection")
        data = {"checkpoint": checkpoint, "turns": turns, "rewards": rewards, "selection": selection}
        checkpoint = put(number, "update", {}, {**data, "reference": first}, "samples", "metrics", "checkpoint")
    store.runs.set_state(name, "completed", "completed")
    return made


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Function that writes the module `mine_code`, as if it had existed when the process started."""
    monkeypatch.syspath_prepend(str(tmp_path))

    from starpo.ragen.core.identity import code_identity
    from starpo.ragen.core.sources import find, read

    def write(text: str) -> None:
        (tmp_path / "mine_code.py").write_text(text)
        (tmp_path / "__pycache__").mkdir(exist_ok=True)
        for file in (tmp_path / "__pycache__").iterdir():
            file.unlink()
        sys.modules.pop("mine_code", None)
        for cached in (code_identity, read, find):
            cached.cache_clear()

    return write
