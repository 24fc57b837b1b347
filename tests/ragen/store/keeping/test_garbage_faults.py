"""If something that runs need is missing, nothing is deleted unless explicitly requested."""

import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.garbage import delete_garbage, find_garbage
from starpo.ragen.store.keeping.reachability import Reachability
from starpo.ragen.store.remote.opening import open_location
from tests.ragen.store.keeping.garbage import LATER, MakeRun, forget, paths


@pytest.fixture
def damaged(store: Store, make_run: MakeRun) -> tuple[Store, str]:
    """Store with a run whose first rollout is lost, and artifacts that no run needs; key of that rollout."""
    turns = next(key for kind, key in make_run(store, "a", 1) if kind == "turns")
    make_run(store, "b", 1, keep=0.25)
    forget(store, "b")
    open_location(store.url).delete([f"turns/{turns}/manifest.json"])
    return store, turns


def test_missing_input_stops_deletion(damaged: tuple[Store, str]) -> None:
    store, turns = damaged
    before = paths(store)
    garbage = find_garbage(open_location(store.url), now=LATER)
    assert garbage.doomed
    with pytest.raises(StoreError) as caught:
        delete_garbage(open_location(store.url), garbage)
    assert "nothing was deleted" in str(caught.value)
    assert f"turns/{turns} is not in the store; needed by run a, iteration 0, stage rollout" in str(caught.value)
    assert "--ignore-missing" in str(caught.value)
    assert paths(store) == before


def test_unreadable_records_stop_deletion(store: Store, make_run: MakeRun) -> None:
    make_run(store, "a", 1)
    for text in ("{", "[]", '{"rollout": 3}', '{"rollout": {"turns": 3}}'):
        open_location(store.url).replace("runs/a/iterations/00000.json", text.encode())
        with pytest.raises(ArtifactDamagedError, match=r"iterations/00000.json cannot be read"):
            find_garbage(open_location(store.url), now=LATER)


@pytest.mark.ci
def test_dropped_checkpoint_is_no_fault(store: Store, make_run: MakeRun) -> None:
    made = make_run(store, "a", 3)
    checkpoints = [key for kind, key in made if kind == "checkpoint"]
    store.drop("checkpoint", checkpoints[1])
    open_location(store.url).delete([f"checkpoint/{checkpoints[2]}/manifest.json"])  # without keeping its manifest
    garbage = find_garbage(open_location(store.url), now=LATER)
    assert garbage.faults == []
    assert garbage.dropped == sorted(("checkpoint", key) for key in checkpoints[1:3])
    assert garbage.doomed == []
    reach = Reachability(open_location(store.url)).of("a")
    assert reach.dropped["checkpoint", checkpoints[1]] is not None  # type: ignore[index]
    assert reach.dropped["checkpoint", checkpoints[2]] is None  # type: ignore[index]
    forget(store, "a")
    store.runs.create("b", flow="starpo", preset=None, config={})
    delete_garbage(open_location(store.url), find_garbage(open_location(store.url), now=LATER))
    assert paths(store) == []


def test_the_first_checkpoint_cannot_be_derived(store: Store, make_run: MakeRun) -> None:
    kind, key = make_run(store, "a", 1)[0]
    open_location(store.url).delete([f"{kind}/{key}/manifest.json"])
    assert [fault.artifact for fault in find_garbage(open_location(store.url), now=LATER).faults] == [(kind, key)]
