"""A run with a critic on object storage, and its replay, verification, an ablation and a sweep there."""

import os
from collections.abc import Iterator

import boto3
import pytest

from starpo.flows.ablation import ablation
from starpo.flows.eval_sweep import eval_sweep
from starpo.flows.presets import preset
from starpo.flows.replay import replay
from starpo.flows.replay_summary import replay_facts
from starpo.flows.starpo import starpo
from starpo.flows.sweep_plan import plan_sweep
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.store import Store
from starpo.ragen.studies.grid import Grid
from starpo.ragen.studies.studies import Ablations, Sweeps
from starpo.ragen.studies.sweep import Sweep
from starpo.tasks.loop.verify import verify_run

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.integration,
    pytest.mark.usefixtures("prefect_server"),
    pytest.mark.timeout(600),
]

CRITIC = {"update.advantage": "gae", "update.gae_lambda": 0.9}


@pytest.fixture(scope="module")
def store(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Store in a bucket, with the run 'base'."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "an-access-key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("RAGEN_THREADS", "1")
        boto3.resource("s3", endpoint_url=endpoint).create_bucket(Bucket="bucket")
        starpo(preset("smoke", CRITIC), preset="smoke", store="s3://bucket/runs", run="base")
        yield Store("s3://bucket/runs")


def test_unchanged_updates_are_found_and_changed_ones_compared(store: Store) -> None:
    recorded = store.runs.iterations("base")
    unchanged = store.runs.iterations(replay("base", store=store.url))
    for iteration in (0, 1):
        assert unchanged[iteration]["update"] == recorded[iteration]["update"]
    branch = replay("base", overrides={"update.clip_high": 0.5, "update.gae_lambda": 0.5}, store=store.url)
    rows = replay_facts(store, branch)["iterations"]
    assert [row["iteration"] for row in rows] == [0, 1]
    assert all(row["gradient_cosine"] < 1 for row in rows)


def test_every_stage_is_verified(store: Store) -> None:
    verdicts = {finding.verdict for finding in verify_run(store, "base").findings}
    assert verdicts == {Verdict.SAME}


def test_an_ablation_shares_what_is_in_the_bucket(store: Store) -> None:
    grid = Grid(name="far", preset="smoke", seeds=[0], axes={"update.clip_high": [0.28, 0.4]}, overrides=CRITIC)
    ablation(grid, store=store.url, allow_few_seeds=True)
    result = Ablations(store.url).get("far")
    assert not any(cell.errors for cell in result.cells)
    names = [run for run in store.runs.names() if run.startswith("far.")]
    rollouts = {store.runs.iteration(name, 0)["rollout"]["turns"] for name in names}
    assert rollouts == {store.runs.iteration("base", 0)["rollout"]["turns"]}


def test_a_sweep_shares_cells_with_training_in_the_bucket(store: Store) -> None:
    sweep = Sweep(name="far", runs=["base"], iterations=[0, 2], temperatures=[0.5, 1.0])
    assert [planned.cell.label for planned in plan_sweep(store, sweep).missing] == [
        "base@0 sokoban T=1 seed=0",
        "base@2 sokoban T=1 seed=0",
    ]
    eval_sweep(sweep, store=store.url, concurrency=2)
    result = Sweeps(store.url).get("far")
    assert not result.failures
    assert len(result.cells) == 4
    assert next(iter(result.cells.values())) == store.runs.iteration("base", 0)["evaluate:sokoban"]["episodes"]
    assert not plan_sweep(store, sweep).missing
