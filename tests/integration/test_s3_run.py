"""A whole run on object storage has the digests of a local one, through faults, an outage, and on a real server."""

import os
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.retries.standard import ExponentialBackoff

from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.integrity import verify_store
from starpo.ragen.store.remote import object_storage
from starpo.ragen.store.remote.opening import open_location
from starpo.tasks.loop.record import RunRecorder
from tests.integration.faults import Fault, FaultyProxy, Schedule, scripted, seeded
from tests.integration.run_digests import Digests, digests

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(600)]

MAX_REQUESTS = 42
"""Per iteration without evaluation. Excludes those for the lease, two every ten seconds."""


@pytest.fixture(scope="module")
def config() -> StarPOConfig:
    little = {"policy.warm_start_steps": 40, "policy.demonstration_turns": 1000, "evaluation.num_prompts": 4}
    return preset("smoke", {"iterations": 2, "evaluation.every": 100, "evaluation.variants": {}, **little})


@pytest.fixture(scope="module")
def expected(config: StarPOConfig, tmp_path_factory: pytest.TempPathFactory) -> Digests:
    store = Store(str(tmp_path_factory.mktemp("store")))
    return digests(store, starpo(config, preset="smoke", store=store.url))


@pytest.fixture
def proxy(endpoint: str, s3_account: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Proxy to moto's server; the store goes through it, and pauses only briefly."""
    monkeypatch.setattr(object_storage, "PAUSE_S", 0.01)
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda self, context: 0.0)
    with FaultyProxy(endpoint) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
        yield made


def new_store() -> Store:
    bucket = f"bucket-{uuid.uuid4().hex}"
    boto3.Session().client("s3").create_bucket(Bucket=bucket)
    return Store(f"s3://{bucket}/store")


@pytest.mark.thorough
def test_requests_an_iteration(
    config: StarPOConfig, expected: Digests, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[int] = []
    done = RunRecorder.iteration_done

    def noted(self: RunRecorder, iteration: int) -> None:
        done(self, iteration)
        ends.append(len(proxy.requests))

    monkeypatch.setattr(RunRecorder, "iteration_done", noted)
    store = new_store()
    assert digests(store, starpo(config, preset="smoke", store=store.url)) == expected
    iteration = [request for request in proxy.requests[ends[0] : ends[1]] if "%2Fleases" not in request.path]
    iteration = [request for request in iteration if "/leases/" not in request.path]
    assert len(iteration) <= MAX_REQUESTS, Counter(request.method for request in iteration)
    assert not [request for request in iteration if request.method in ("HEAD", "DELETE")]
    assert not [request for request in iteration if request.method == "GET" and ".parquet" in request.path]


def test_through_faults_to_the_same_digests(config: StarPOConfig, expected: Digests, proxy: FaultyProxy) -> None:
    store = new_store()
    proxy.schedule = seeded(11, rate=0.15)
    run = starpo(config, preset="smoke", store=store.url)
    kinds = Counter(request.fault for request in proxy.requests if request.fault)
    proxy.schedule = scripted([])
    assert digests(store, run) == expected
    assert verify_store(open_location(store.url)).damages == []
    assert len(kinds) > 5, kinds


@pytest.mark.thorough
def test_dying_server_stops_run_without_loss(
    config: StarPOConfig, expected: Digests, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_storage, "PATIENCE_S", 1.0)
    store = new_store()
    proxy.schedule = dies_after(40)
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"^cannot \w+ s3://.*\n.*nothing was lost, run the same command again"):
        starpo(config, preset="smoke", store=store.url, run="mine")
    assert time.monotonic() - started < 120
    proxy.schedule = scripted([])
    assert verify_store(open_location(store.url)).damages == []
    starpo(config, preset="smoke", store=store.url, run="mine")
    assert digests(store, "mine") == expected


def dies_after(number: int) -> Schedule:
    """Schedule that lets this many requests pass, and no later ones."""
    count = iter(range(1_000_000))
    return lambda method, path: None if next(count) < number else Fault.RESET_BEFORE


@pytest.mark.ceph
def test_run_is_stored_on_ceph(
    config: StarPOConfig,
    expected: Digests,
    ceph: dict[str, str],
    s3_account: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in ceph.items():
        monkeypatch.setenv(name, value)
    store = new_store()
    run = starpo(config, preset="smoke", store=store.url)
    assert digests(store, run) == expected
    assert verify_store(open_location(store.url)).damages == []
    shown = (Path(os.environ["XDG_CACHE_HOME"]) / "starpo").iterdir()
    assert not [folder for folder in shown if folder.name.startswith("part-")]
