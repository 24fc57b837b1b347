"""Names, recorded keys and states of runs."""

import threading
from pathlib import Path

import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunRecord, Runs

CONFIG = {"seed": 1, "filter": {"keep": 0.25, "strategy": "top_fraction"}}


def test_create_same_settings_returns_same_run(store: Store) -> None:
    made = store.runs.create("first", flow="starpo", preset="sokoban", config=CONFIG)
    assert store.runs.create("first", flow="starpo", preset=None, config=dict(reversed(CONFIG.items()))) == made


REUSED = (
    "Give this run another name, and it reuses every stage that the change does not concern; or use the settings of "
    "the earlier one to continue it."
)


@pytest.mark.parametrize(
    ("change", "advice"),
    [
        ({"iterations": 20}, " A run of another length shares all iterations that both have, unless a learning rate"),
        (
            {"iterations": 20},
            "`starpo fork first --from N --set PATH=VALUE` changes settings of rollout, reward, filter",
        ),
        ({"iterations": 20}, "from iteration N on, and keeps the length."),
        ({"filter": {"keep": 0.5}}, " `starpo fork first --from N --set PATH=VALUE` changes settings of rollout"),
        ({"seed": 2}, ""),
    ],
)
def test_reused_name_error_gives_fork_advice(store: Store, change, advice) -> None:
    config = {"iterations": 10, "seed": 1, "filter": {"keep": 0.25}}
    store.runs.create("first", flow="starpo", preset=None, config=config)
    with pytest.raises(StoreError) as caught:
        store.runs.create("first", flow="starpo", preset=None, config=config | change)
    last = str(caught.value).splitlines()[-1]
    assert last.startswith(REUSED)
    assert advice in last
    assert (last == REUSED) == (not advice)


def test_create_with_other_settings_names_them(store: Store) -> None:
    store.runs.create("first", flow="starpo", preset=None, config=CONFIG)
    other = {"seed": 2, "filter": {"keep": 0.5, "strategy": "top_fraction"}, "new": True}
    with pytest.raises(StoreError) as caught:
        store.runs.create("first", flow="starpo", preset=None, config=other)
    assert str(caught.value).splitlines()[1:] == [
        "  filter.keep: was 0.25, is 0.5",
        "  new: was None, is True",
        "  seed: was 1, is 2",
        REUSED,
    ]
    with pytest.raises(StoreError, match="flow: was 'starpo', is 'replay'"):
        store.runs.create("first", flow="replay", preset=None, config=CONFIG)
    assert store.runs.get("first").config == CONFIG


@pytest.mark.parametrize("is_ignored", [False, True])
def test_names_differing_by_case_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch, is_ignored: bool) -> None:
    """Everywhere, as a store may move to a disk that ignores case; on such a disk each name finds the other's run."""
    made = store.runs.create("first", flow="starpo", preset=None, config=CONFIG)
    if is_ignored:
        find = Runs.find
        monkeypatch.setattr(Runs, "find", lambda runs, run: find(runs, run.lower()))
    with pytest.raises(StoreError, match=r"a run named 'First' cannot be in .* beside 'first': .* Give this run"):
        store.runs.create("First", flow="starpo", preset=None, config=CONFIG)
    assert store.runs.create("first", flow="starpo", preset=None, config=CONFIG) == made


def test_concurrent_create_with_other_settings_fails(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the run would have the settings of one and the artifacts of the other."""
    find = Runs.find

    def find_and_be_overtaken(runs: Runs, run: str) -> RunRecord | None:
        record = find(runs, run)
        monkeypatch.setattr(Runs, "find", find)
        runs.create(run, flow="starpo", preset=None, config=CONFIG)
        return record

    monkeypatch.setattr(Runs, "find", find_and_be_overtaken)
    with pytest.raises(StoreError, match="seed: was 1, is 2"):
        store.runs.create("first", flow="starpo", preset=None, config={**CONFIG, "seed": 2})
    assert store.runs.get("first").config == CONFIG


def test_unknown_run_suggests_near_ones(store: Store) -> None:
    with pytest.raises(StoreError, match="no runs in it yet"):
        store.runs.get("sokoban")
    for name in ("sokoban-1", "bandit-1"):
        store.runs.create(name, flow="starpo", preset=None, config=CONFIG)
    with pytest.raises(StoreError, match=r"no run 'sokobn-1' in .*; did you mean sokoban-1\?"):
        store.runs.get("sokobn-1")
    with pytest.raises(StoreError, match=r"no run 'else' in .*; it has 2: `starpo runs`$"):
        store.runs.get("else")


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "a b"])
def test_unsafe_run_names_are_rejected(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="cannot be a run name"):
        store.runs.create(name, flow="starpo", preset=None, config={})
    with pytest.raises(StoreError, match="cannot be a run name"):
        store.runs.get(name)


def test_forgetting_a_run_leaves_the_others(store: Store) -> None:
    for name in ("a", "b"):
        store.runs.create(name, flow="starpo", preset=None, config=CONFIG)
        store.runs.record_stage(name, 3, "rollout", {"turns": "t"})
        store.runs.set_state(name, "completed")
    store.runs.forget("a")
    assert [run.name for run in store.runs.list()] == ["b"]
    assert store._location.names("runs") == ["b"]
    assert store.runs.iterations("b") == {3: {"rollout": {"turns": "t"}}}
    with pytest.raises(StoreError, match="no run 'a'"):
        store.runs.forget("a")
    with store.runs.hold("b"), pytest.raises(StoreError, match="working on run 'b'"):
        store.runs.forget("b")
    assert store.runs.iterations("b")


def test_stages_by_iteration(store: Store) -> None:
    store.runs.create("r", flow="starpo", preset=None, config={})
    assert store.runs.iterations("r") == {}
    store.runs.record_stage("r", 10, "rollout", {"turns": "t10"})
    store.runs.record_stage("r", 2, "rollout", {"turns": "t2"})
    store.runs.record_stage("r", 2, "update", {"checkpoint": "c", "metrics": "m"})
    store.runs.record_stage("r", 2, "update", {"checkpoint": "c", "metrics": "m"})
    iterations = store.runs.iterations("r")
    assert list(iterations) == [2, 10]
    assert iterations[2] == {"rollout": {"turns": "t2"}, "update": {"checkpoint": "c", "metrics": "m"}}


def test_concurrent_stages_are_all_recorded(store: Store) -> None:
    store.runs.create("r", flow="starpo", preset=None, config={})
    threads = [
        threading.Thread(target=store.runs.record_stage, args=("r", 0, f"stage-{n}", {"metrics": str(n)}))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.runs.iterations("r")[0] == {f"stage-{n}": {"metrics": str(n)} for n in range(16)}


def test_state(store: Store) -> None:
    store.runs.create("r", flow="starpo", preset=None, config={})
    assert store.runs.state("r") is None
    first = store.runs.set_state("r", "running", "iteration 0: rollout", {"success": 0.25})
    second = store.runs.set_state("r", "completed")
    assert store.runs.state("r") == second
    assert second.metrics == {"success": 0.25}
    assert second.heartbeat >= first.heartbeat


def test_local_records_leave_no_temporary_files(local: Store, tmp_path: Path) -> None:
    local.runs.create("r", flow="starpo", preset=None, config=CONFIG)
    local.runs.record_stage("r", 12, "rollout", {"turns": "t"})
    local.runs.set_state("r", "running")
    folder = tmp_path / "store" / "runs" / "r"
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert names == ["iterations/00012.json", "run.json", "state.json"]


@pytest.mark.parametrize("text", ["", "{", '{"name": 3}'])
def test_broken_files_are_named(local: Store, tmp_path: Path, text: str) -> None:
    local.runs.create("r", flow="starpo", preset=None, config={})
    local.runs.record_stage("r", 0, "rollout", {})
    folder = tmp_path / "store" / "runs" / "r"
    (folder / "run.json").write_text(text)
    with pytest.raises(ArtifactDamagedError, match=r"runs/r/run.json cannot be read .*start the run again"):
        local.runs.get("r")
    (folder / "iterations" / "00000.json").write_text("{")
    with pytest.raises(ArtifactDamagedError, match=r"iterations/00000\.json cannot be read"):
        local.runs.iterations("r")


def test_foreign_files_among_runs_are_ignored(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.runs.create("mine", flow="starpo", preset=None, config={})
    (Path(store.url) / "runs" / "mine (copy)").mkdir()
    (Path(store.url) / "runs" / "notes on runs.txt").write_text("mine")
    assert store.runs.names() == ("mine",)
    assert [run.name for run in store.runs.list()] == ["mine"]
