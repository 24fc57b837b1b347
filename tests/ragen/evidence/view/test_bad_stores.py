"""Stores that are collected, damaged, of another version, read-only or without a run, while somebody looks at them."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from starpo.ragen.core.errors import DataError
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.ragen.store.keeping.garbage import delete_garbage, find_garbage
from starpo.ragen.store.remote.opening import open_location
from starpo.schemas.manifest import Manifest, Stage
from tests.permissions import obey_permissions
from tests.ragen.evidence.report.stored import rows
from tests.ragen.evidence.view.conftest import Browser
from tests.ragen.evidence.view.test_app import RUN, client_of, hits_of
from tests.ragen.evidence.view.test_live_in_browser import open_page

PAGES = (RUN, "/", "/runs", f"{RUN}/data", f"{RUN}/status", f"{RUN}/panels", f"{RUN}/search", "/compare?run=hostile")


@pytest.fixture
def client(store: Store) -> TestClient:
    """Client of a server that has read the run already, and keeps what it has read."""
    client = client_of(store)
    assert [client.get(page).status_code for page in PAGES] == [200] * len(PAGES)
    return client


def collect(store: Store) -> int:
    """Delete what no run needs, and return the number of folders."""
    location = open_location(store.url)
    garbage = find_garbage(location, min_age=timedelta(0))
    delete_garbage(location, garbage)
    return len(garbage.doomed)


def test_run_is_forgotten_and_collected(client: TestClient, store: Store) -> None:
    keys = store.runs.iteration("hostile", 1)["rollout"]
    store.runs.create("other", flow="starpo", preset="mine", config=store.runs.get("hostile").config)
    store.runs.record_stage("other", 0, "rollout", keys)
    store.runs.forget("hostile")
    assert collect(store) > 10
    for page in (RUN, *(page for page in PAGES if page.startswith(f"{RUN}/"))):
        answer = client.get(page)
        assert (answer.status_code, "there is no run 'hostile'" in answer.text) == (404, True)
    assert client.get("/compare?run=hostile").status_code == 404
    assert [run["run"] for run in client.get("/runs").json()["rows"]] == ["other"]
    kept = client.get("/run/other/trajectories", params={"iteration": 0}).json()
    assert sum(len(group["members"]) for group in kept["groups"]) == 6
    assert client.get("/run/other/search", params={"where": "num_turns > 0"}).json()["num_hits"] == 6


def test_collected_rollout_is_named(client: TestClient, store: Store) -> None:
    """As after `gc --ignore-missing`, or a folder deleted by hand."""
    key = store.runs.iteration("hostile", 2)["rollout"]["turns"]
    shutil.rmtree(Path(store.url, "turns", key))
    answer = client.get(f"{RUN}/trajectories", params={"iteration": 2})
    assert (answer.status_code, key in answer.text) == (404, True)
    assert hits_of(client)["unread"] == [2]
    assert "turns" in client.get(f"{RUN}/lineage", params={"artifact": f"turns/{key}"}).text
    fresh = client_of(store).get(RUN).text  # of a server that has read nothing yet
    assert f"turns of rollout ({key})" in fresh
    assert client.get(f"{RUN}/trajectories", params={"iteration": 1}).status_code == 200


def test_other_version_is_named(client: TestClient, store: Store) -> None:
    key = store.runs.iteration("hostile", 2)["rollout"]["turns"]
    file = Path(store.url, "turns", key, "manifest.json")
    manifest = Manifest.model_validate_json(file.read_bytes())
    older = manifest.model_copy(update={"dataset_version": 1, "provenance": {"versions": {"starpo": "0.0.1"}}})
    file.write_text(older.sealed().model_dump_json())
    words = f"turns/{key} was written with version 1 of the dataset 'turns', this release knows version"
    assert words in client_of(store).get(f"{RUN}/trajectories", params={"iteration": 2}).text
    assert hits_of(client)["unread"] == [2]
    assert words in client.get(f"{RUN}/search", params={"where": "success"}).text


def test_damaged_records_are_named(client: TestClient, store: Store) -> None:
    [file] = Path(store.url).glob("runs/hostile/iterations/*2.json")
    file.write_text("{")
    page = client.get(RUN)
    assert page.status_code == 200
    assert "its record" in page.text
    assert client.get(f"{RUN}/trajectories", params={"iteration": 1}).status_code == 200
    assert client_of(store).get("/runs").json()["rows"][0]["state"] == "damaged"


def test_two_servers_serve_one_store(store: Store) -> None:
    """Each answers several viewers at once, while the run grows."""
    servers = [client_of(store), client_of(store)]

    def look(number: int) -> list[int]:
        client = servers[number % 2]
        return [client.get(page).status_code for page in (*PAGES, f"{RUN}/trajectories?iteration={number % 4}")]

    with ThreadPoolExecutor(6) as viewers:
        looking = viewers.map(look, range(12))
        for iteration in range(5, 9):
            store.runs.record_stage("hostile", iteration, "rollout", store.runs.iteration("hostile", 3)["rollout"])
        assert set(map(tuple, looking)) == {(200,) * (len(PAGES) + 1)}
    first, second = (server.get(f"{RUN}/data").json() for server in servers)
    assert first == second
    assert [batch["iteration"] for batch in first["batches"] if batch["cell"] is None] == [*range(4), *range(5, 9)]


READING = """
import json, sys
from starlette.testclient import TestClient
from starpo.ragen.evidence.view.app import application
from starpo.ragen.evidence.view.reading import StoreReader
from starpo.ragen.store import Store
client = TestClient(application(StoreReader(Store(sys.argv[1]))))
print(json.dumps([client.get(page).status_code for page in sys.argv[2:]]))
"""


@pytest.mark.ci
def test_read_only_store_is_served(store: Store) -> None:
    pages = [*PAGES, f"{RUN}/trajectories?iteration=1", f"{RUN}/search?where=success"]
    before = {str(path): path.stat().st_mtime_ns for path in Path(store.url).rglob("*")}
    for path in (Path(store.url), *Path(store.url).rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        done = subprocess.run(
            [sys.executable, "-c", READING, store.url, *pages],
            preexec_fn=obey_permissions, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    finally:
        for path in (Path(store.url), *Path(store.url).rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    assert json.loads(done.stdout) == [200] * len(pages)
    assert {str(path): path.stat().st_mtime_ns for path in Path(store.url).rglob("*")} == before


@pytest.mark.ci
def test_quarantined_dataset_is_shown(browser: Browser, served: str, store: Store) -> None:
    """What a run that stores such data ends with (`RunRecorder`), while its page is open."""
    store.runs.set_state("hostile", "running", "reward")
    open_page(browser, f"{served}/run/hostile")
    browser.wait_for("document.documentElement.dataset.ready && document.querySelector('#activity .running')")
    table = store.read_table("turns", store.runs.iteration("hostile", 1)["rollout"]["turns"])
    stage = Stage(name="rollout", version=1)
    facts = Facts(
        key=stage_key(stage, {}, {}, 0), stage=stage, settings={}, inputs={}, seed=0, provenance={}, headline=None
    )
    gaps = pa.array([turn + 7 for turn in table["turn"].to_pylist()], pa.int32())
    with pytest.raises(DataError) as refused:
        store.put_table("turns", table.set_column(table.schema.get_field_index("turn"), "turn", gaps), facts)
    store.runs.set_state("hostile", "failed", f"DataError: {refused.value}")
    browser.wait_for("document.querySelector('#activity .failed')")
    shown = browser.text("#activity")
    assert "turn" in shown
    assert f"{store.url}/quarantine/turns-{facts.key}-" in shown
    open_page(browser, f"{served}/")
    browser.wait_for("document.querySelectorAll('#runs tbody tr').length === 1")
    assert "DataError: " in browser.text("#runs tbody tr")
    assert rows(store, 1, "rollout", "turns")  # what it has stored is shown as before
