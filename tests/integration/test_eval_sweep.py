"""The flow `eval-sweep` on a real Prefect server: shared, missing, late and failing cells, and dropped checkpoints."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterTags

from starpo.flows.eval_sweep import eval_sweep
from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.flows.sweep_plan import plan_sweep
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.core.errors import EngineError
from starpo.ragen.runs import kept_shards
from starpo.ragen.store import Store
from starpo.ragen.studies.finish import CellsFailedError
from starpo.ragen.studies.studies import Sweeps
from starpo.ragen.studies.sweep import Sweep
from starpo.tasks.loop import training

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(600)]

RUN = "live"
CONFIG = preset("smoke", {"iterations": 3, "checkpoint_every": 2, "evaluation.every": 100})
SWEEP = Sweep(name="late", runs=[RUN], iterations="all", temperatures=[0.5, 1.0], seeds=[0, 1])


class InterruptedRunError(RuntimeError):
    """Stand-in for the death of a process in the middle of a run."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, prefect_server: None, begun: Callable[..., str]) -> Store:
    """Store with a run that was interrupted after two of three iterations, and a sweep over its checkpoints."""
    store = Store(begun(tmp_path_factory.mktemp("store")))
    update = training.update

    def interrupted(config, iteration, *keys, **options):
        if iteration == 2:
            raise InterruptedRunError
        return update(config, iteration, *keys, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "update", interrupted)
        with pytest.raises(InterruptedRunError):
            starpo(CONFIG, preset="smoke", store=store.url, run=RUN)
    assert eval_sweep(SWEEP, store=store.url) == "late"
    return store


def stored(store: Store) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path(store.url).glob("episodes/*/manifest.json")}


def test_every_cell_evaluated_without_retraining(swept: Store) -> None:
    result = Sweeps(swept.url).get("late")
    assert list(result.cells) == [
        f"live@{iteration} sokoban T={temperature:g} seed={seed}"
        for iteration in (0, 1, 2)
        for temperature in (0.5, 1.0)
        for seed in (0, 1)
    ]
    assert len(stored(swept)) == len(result.cells)  # including the run's own evaluation at iteration 0
    at_start = swept.runs.iteration(RUN, 0)["evaluate:sokoban"]["episodes"]
    assert next(iter(result.cells.values())) == at_start
    assert {standing.iteration for standing in result.leaderboard} == {0, 1, 2}
    assert [of.scores["sokoban"].num_episodes for of in result.leaderboard] == [16] * 6  # 8 prompts with two seeds
    assert all(of.scores["sokoban"].seconds > 0 for of in result.leaderboard)


def test_seeds_share_prompts_not_chance(swept: Store) -> None:
    cells = Sweeps(swept.url).get("late").cells
    one, other = (swept.read_table("episodes", cells[f"live@2 sokoban T=1 seed={seed}"]) for seed in (0, 1))
    assert one["initial_state_digest"] == other["initial_state_digest"]
    assert one["responses"] != other["responses"]


def test_cells_carry_the_limiting_tag(swept: Store) -> None:
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(task_run_filter=TaskRunFilter(tags=TaskRunFilterTags(all_=["gpu"])))
    assert {"live@2 sokoban T=1 seed=1", "live@0 sokoban T=1 seed=0"} <= {run.name for run in runs}


@pytest.fixture
def one_gpu() -> Iterator[None]:
    """Concurrency limit that `prefect concurrency-limit create gpu 1` creates."""
    with get_client(sync_client=True) as client:
        client.create_concurrency_limit(tag="gpu", concurrency_limit=1)
    yield
    with get_client(sync_client=True) as client:
        client.delete_concurrency_limit_by_tag("gpu")


@pytest.mark.thorough
@pytest.mark.usefixtures("one_gpu")
def test_tag_limit_runs_one_cell(swept: Store) -> None:
    sweep = Sweep(name="limited", runs=[RUN], iterations=[0, 2], temperatures=[0.6, 0.7])
    eval_sweep(sweep, store=swept.url, concurrency=2)
    facts = [swept.manifest("episodes", key).provenance for key in Sweeps(swept.url).get("limited").cells.values()]
    ends = [datetime.fromisoformat(fact["written_at"]) for fact in facts]
    spans = sorted((end - timedelta(seconds=fact["seconds"]), end) for fact, end in zip(facts, ends, strict=True))
    assert len(spans) == 4
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def test_late_checkpoints_are_picked_up(swept: Store) -> None:
    before = stored(swept)
    starpo(CONFIG, preset="smoke", store=swept.url, run=RUN)
    dropped = [key for key in checkpoints(swept) if swept.dropped("checkpoint", key) is not None]
    assert len(dropped) == 1  # checkpoint_every = 2 keeps 0, 2 and 3
    by_the_run = stored(swept)
    plan = plan_sweep(swept, SWEEP)
    assert {planned.cell.iteration for planned in plan.missing} == {3}
    eval_sweep(SWEEP, store=swept.url)
    after = stored(swept)
    assert {path: after[path] for path in before} == before
    assert len(after) == len(by_the_run) + len(plan.missing)
    assert {standing.iteration for standing in Sweeps(swept.url).get("late").leaderboard} == {0, 1, 2, 3}


def test_dropped_checkpoint_derived_and_dropped_again(swept: Store) -> None:
    starpo(CONFIG, preset="smoke", store=swept.url, run=RUN)  # for when this test runs alone
    key = checkpoints(swept)[1]
    assert swept.dropped("checkpoint", key) is not None
    sweep = Sweep(name="derived", runs=[RUN], iterations=[1], temperatures=[0.25])
    assert plan_sweep(swept, sweep).dropped(swept) == [key]
    eval_sweep(sweep, store=swept.url)
    assert not Sweeps(swept.url).get("derived").failures
    assert not swept.has("checkpoint", key)
    assert swept.dropped("checkpoint", key) is not None


def test_failing_cell_named_others_evaluated(swept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from starpo.tasks import evaluate as evaluation

    play = evaluation._play

    def failing(*args):
        if args[-3].settings["iteration"] == 0:
            raise ValueError("no such tile")
        return play(*args)

    sweep = Sweep(name="failing", runs=[RUN], iterations=[0, 2], temperatures=[0.75])
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "_play", failing)
        with pytest.raises(CellsFailedError) as caught:
            eval_sweep(sweep, store=swept.url)
    assert str(caught.value).startswith(
        "1 of 2 cells of the evaluation failing failed:\n  live@0 sokoban T=0.75 seed=0: ValueError: no such tile"
    )
    result = Sweeps(swept.url).get("failing")
    assert [standing.rank for standing in result.leaderboard][-1] is None
    assert [standing.iteration for standing in result.leaderboard if standing.scores] == [2]
    assert len(plan_sweep(swept, sweep).missing) == 1
    eval_sweep(sweep, store=swept.url)
    assert not Sweeps(swept.url).get("failing").failures


def checkpoints(store: Store) -> list[str]:
    from starpo.ragen.store.keeping.checkpoints import checkpoint_keys

    return list(checkpoint_keys(store.runs.iterations(RUN)).values())


def test_stopped_cell_goes_on(swept: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cell whose engine fails after a shard, the next sweep plays the other shards alone."""
    played: list[str] = []
    play = LocalPlayer.play

    def fails_once(player: LocalPlayer, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        played.append(episodes[0].group_id)
        if len(played) == 2:
            raise EngineError("the power failed")
        return play(player, job, episodes)

    monkeypatch.setattr(LocalPlayer, "play", fails_once)
    monkeypatch.setattr(kept_shards, "KEEP_AFTER_S", 0.0)
    monkeypatch.setenv("STARPO_THREADS", "1")
    sweep = Sweep(name="stopped", runs=[RUN], iterations=[1], seeds=[7], num_prompts=100)
    with pytest.raises(CellsFailedError):
        eval_sweep(sweep, store=swept.url)
    (failing,) = plan_sweep(swept, sweep).cells
    assert eval_sweep(sweep, store=swept.url) == "stopped"
    assert played.count(played[0]) == 1
    assert played.count(played[1]) == 2
    assert swept.manifest("episodes", failing.work.key).provenance["recalled_episodes"] >= 1
    assert swept._location.names(kept_shards.KIND) == []
