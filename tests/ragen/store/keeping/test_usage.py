"""Bytes by kind add up to the size of the store; bytes by run show what is shared."""

from collections.abc import Callable
from pathlib import Path

import pytest

from starpo.ragen.store import Store
from starpo.ragen.store.keeping.usage import Usage, measure
from starpo.ragen.store.remote.opening import open_location

MakeRun = Callable[..., list[tuple[str, str]]]


def usage(store: Store) -> Usage:
    return measure(open_location(store.url))


def test_usage_by_kind_sums_to_disk(local: Store, make_run: MakeRun, tmp_path: Path) -> None:
    make_run(local, "a", 2)
    open_location(local.url).replace(f"turns/{'f' * 32}/part-00000.parquet", b"half")
    open_location(local.url).replace(f"tmp/{'e' * 32}/part-00000.parquet", b"staged")
    open_location(local.url).replace("quarantine/turns-x-0/reason.txt", b"reason")
    open_location(local.url).replace("ablations/x/result.json", b"{}")
    local.answers.put({"prompt": "Is it?"}, "YES")
    total = usage(local)
    assert total.size_bytes == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    numbers = {kind.kind: kind.number for kind in total.kinds}
    assert numbers == {
        "checkpoint": 3, "turns": 2, "rewards": 2, "selection": 2, "samples": 2, "metrics": 2, "records": 5,
        "answers": 1, "unfinished": 1, "temporary": 1, "quarantine": 1,
    }  # fmt: skip
    assert [kind.size_bytes for kind in total.kinds] == sorted((k.size_bytes for k in total.kinds), reverse=True)


def test_usage_of_runs_counts_shared_bytes(store: Store, make_run: MakeRun) -> None:
    mine, other = set(make_run(store, "a", 1)), set(make_run(store, "b", 1, keep=0.25))
    runs = {run.run: run for run in usage(store).runs}

    def size(artifacts: set[tuple[str, str]]) -> int:
        return sum(
            file.size_bytes for kind, key in artifacts for file in open_location(store.url).files(f"{kind}/{key}")
        )

    assert runs["a"].number == len(mine)
    assert runs["a"].size_bytes == size(mine)
    assert runs["a"].own_bytes == size(mine - other)
    assert runs["b"].own_bytes == size(other - mine)
    assert runs["a"].shared_bytes == runs["b"].shared_bytes == size(mine & other) > 0


def test_what_no_run_needs_is_shown(store: Store, make_run: MakeRun) -> None:
    make_run(store, "a", 1)
    alone = usage(store)
    assert {kind.unreached_number for kind in alone.kinds} == {0}
    make_run(store, "b", 1, keep=0.25)
    open_location(store.url).delete(["runs/b/run.json", "runs/b/state.json", "runs/b/iterations/00000.json"])
    kinds = {kind.kind: kind for kind in usage(store).kinds}
    assert {name: kind.unreached_number for name, kind in kinds.items() if kind.unreached_number} == {
        "checkpoint": 1, "metrics": 1, "samples": 1, "selection": 1,
    }  # fmt: skip
    assert kinds["checkpoint"].unreached_bytes > 0


@pytest.mark.ci
@pytest.mark.parametrize("is_dropped", [True, False])
def test_gaps_are_counted(store: Store, make_run: MakeRun, is_dropped: bool) -> None:
    made = make_run(store, "a", 1)
    if is_dropped:
        store.drop(*made[-1])
    else:
        open_location(store.url).delete([f"{made[1][0]}/{made[1][1]}/manifest.json"])
    (run,) = usage(store).runs
    assert (run.num_dropped, run.num_faults) == ((1, 0) if is_dropped else (0, 1))
