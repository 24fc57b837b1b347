"""An evaluation that is stopped goes on where it was: finished shards are in the store until its outputs are."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.core.errors import EngineError, StoreError
from starpo.ragen.runs import kept_shards
from starpo.ragen.runs.kept_shards import KIND, KeptShards
from starpo.ragen.runs.work import Work
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.keeping.garbage import find_garbage
from starpo.ragen.store.keeping.integrity import verify_store
from starpo.schemas.manifest import Stage
from starpo.tasks.evaluate import evaluate
from starpo.tasks.progress import RunProgress
from tests.examples import put_folder

POLICY = Path(__file__).parents[1] / "golden" / "checkpoint"
SIZES = {
    "rollout.num_groups": 1, "rollout.shard_groups": 1, "rollout.group_size": 4, "evaluation.num_prompts": 6,
    "evaluation.samples_per_prompt": 4,
}  # fmt: skip
NUM_SHARDS, NUM_EPISODES = 6, 24
DATASETS = ("episode_turns", "episodes", "metrics")


@dataclass
class Playing:
    """What `LocalPlayer` was given to play, and after how many shards it fails."""

    shards: list[str] = field(default_factory=list)
    num_before_failure: int = NUM_SHARDS


@pytest.fixture
def playing(monkeypatch: pytest.MonkeyPatch) -> Playing:
    monkeypatch.setattr(kept_shards, "KEEP_AFTER_S", 0.0)
    monkeypatch.setenv("STARPO_THREADS", "1")
    playing, play = Playing(), LocalPlayer.play

    def noted(player: LocalPlayer, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        if len(playing.shards) == playing.num_before_failure:
            raise EngineError("the power failed")
        playing.shards.append(episodes[0].group_id)
        return play(player, job, episodes)

    monkeypatch.setattr(LocalPlayer, "play", noted)
    return playing


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[Store, Work]]:
    """`make(name)`: a store of this name with a checkpoint, and its evaluation."""

    def make(name: str, progress: RunProgress | None = None) -> tuple[Store, Work]:
        store = Store(str(tmp_path / name))
        if not store.has("checkpoint", "c" * 32):
            facts = Facts(key="c" * 32, stage=Stage(name="made", version=1), settings={}, inputs={}, seed=None)
            put_folder(store, "checkpoint", str(POLICY), facts)
            store.runs.create("mine", flow="starpo", preset=None, config={})
        config = preset("smoke", SIZES)
        settings = (config.environment, config.agent, config.rollout, config.evaluation)
        return store, evaluate(0, "sokoban", *settings, "c" * 32, lineage=store.url, progress=progress)

    return make


def contents(store: Store, work: Work) -> dict[str, str]:
    return {kind: store.manifest(kind, work.key).content_digest for kind in DATASETS}


def stop(playing: Playing, store: Store, work: Work, num_finished: int) -> None:
    """Carry the work out until the engine fails after some shards."""
    playing.shards, playing.num_before_failure = [], num_finished
    with pytest.raises(EngineError, match="the power failed"):
        work.carry_out(store)
    playing.shards, playing.num_before_failure = [], NUM_SHARDS


def kept(store: Store) -> list[str]:
    return store._location.names(KIND)


def test_stopped_evaluation_plays_the_rest(playing: Playing, make: Callable[..., tuple[Store, Work]]) -> None:
    whole, work = make("whole")
    work.carry_out(whole)
    assert playing.shards == [f"p{prompt:04d}" for prompt in range(NUM_SHARDS)]
    store, again = make("stopped")
    stop(playing, store, again, num_finished=4)
    assert len(kept(store)) == 4
    again.carry_out(store)
    assert playing.shards == ["p0004", "p0005"]
    assert contents(store, again) == contents(whole, work)
    assert kept(store) == []
    for kind in DATASETS:
        (part,), (undisturbed,) = (one.parts(kind, work.key) for one in (store, whole))
        assert Path(str(part)).read_bytes() == Path(str(undisturbed)).read_bytes()
    provenance = store.manifest("episodes", work.key).provenance
    assert provenance["recalled_episodes"] == 16
    assert "recalled_episodes" not in whole.manifest("episodes", work.key).provenance


def test_stopped_twice_continues_twice(playing: Playing, make: Callable[..., tuple[Store, Work]]) -> None:
    store, work = make("store")
    stop(playing, store, work, num_finished=2)
    stop(playing, store, work, num_finished=3)
    work.carry_out(store)
    assert playing.shards == ["p0005"]
    assert kept(store) == []


def test_short_evaluation_keeps_nothing(
    playing: Playing, make: Callable[..., tuple[Store, Work]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_shards, "KEEP_AFTER_S", 1e6)
    store, work = make("store")
    stop(playing, store, work, num_finished=5)
    assert kept(store) == []


def test_progress_tells_of_earlier_attempt(
    playing: Playing, make: Callable[..., tuple[Store, Work]], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    store, work = make("store")
    stop(playing, store, work, num_finished=3)
    progress = RunProgress(store.url, "mine")
    messages: list[str] = []
    monkeypatch.setattr(progress, "_write_soon", lambda: messages.append(progress._message))
    progress.say("evaluate sokoban")
    with caplog.at_level(logging.WARNING):
        make("store", progress)[1].carry_out(store)
    assert "evaluate sokoban (12 of 24 episodes were stored)" in messages
    assert messages[-1].startswith("evaluate sokoban (12 of 24 episodes were stored) response ")
    assert "an attempt that was stopped had finished 12 of 24 episodes" in caplog.text


def test_store_with_kept_shards_is_sound(playing: Playing, make: Callable[..., tuple[Store, Work]]) -> None:
    store, work = make("store")
    stop(playing, store, work, num_finished=3)
    assert verify_store(store._location).damages == []
    young = {folder.path.partition("/")[0] for folder in find_garbage(store._location).young}
    assert KIND in young


def test_damaged_shard_is_played_again(
    playing: Playing, make: Callable[..., tuple[Store, Work]], caplog: pytest.LogCaptureFixture
) -> None:
    whole, undisturbed = make("whole")
    undisturbed.carry_out(whole)
    store, work = make("store")
    stop(playing, store, work, num_finished=5)
    assert len(kept(store)) == 5
    file = Path(store.url) / KIND / kept(store)[0] / kept_shards.FILE
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    work.carry_out(store)
    assert len(playing.shards) == 2
    assert "damaged, and played again" in caplog.text
    assert contents(store, work) == contents(whole, undisturbed)


@pytest.mark.parametrize(("is_computed", "num_played"), [(True, NUM_SHARDS), (False, 0)])
def test_other_versions_recall_no_computed_shard(
    playing: Playing, make: Callable[..., tuple[Store, Work]], monkeypatch: pytest.MonkeyPatch,
    is_computed: bool, num_played: int,
) -> None:  # fmt: skip
    store, work = make("store")
    shards = [[Episode(f"p{number:04d}", 0, number, number, number)] for number in range(NUM_SHARDS)]
    first = KeptShards(store, work, is_computed=is_computed)
    for shard in shards:
        first.keep(shard, pa.table({"rows": [1]}))
    monkeypatch.setattr(kept_shards, "collect", lambda: {"hardware": {}, "versions": {"torch": "another"}})
    recalled = KeptShards(store, work, is_computed=is_computed).recall(shards)
    assert len(recalled) == NUM_SHARDS - num_played


def test_shards_of_other_work_stay_apart(playing: Playing, make: Callable[..., tuple[Store, Work]]) -> None:
    store, work = make("store")
    config = preset("smoke", {**SIZES, "evaluation.temperature": 0.9})
    settings = (config.environment, config.agent, config.rollout, config.evaluation)
    other = evaluate(0, "sokoban", *settings, "c" * 32, lineage=store.url)
    stop(playing, store, other, num_finished=5)
    work.carry_out(store)
    assert len(playing.shards) == NUM_SHARDS
    assert len(kept(store)) == 5


def test_full_store_does_not_stop_play(
    playing: Playing, make: Callable[..., tuple[Store, Work]], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    store, work = make("store")

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "take_folder", full)
    work.carry_out(store)
    assert work.is_stored(store)
    assert "if this is stopped, they are played again: the disk is full" in caplog.text
