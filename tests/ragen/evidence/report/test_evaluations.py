"""Evaluated episodes as the page shows them: as trained trajectories, as far as an evaluation has stored them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from starpo.ragen.agents.evaluation.episodes import episode_turns, fold_episodes
from starpo.ragen.evidence.reading import Reader, places
from starpo.ragen.evidence.report.evaluations import read_evaluation
from starpo.ragen.evidence.report.groups import OneGroup
from starpo.ragen.evidence.report.trajectory import TrajectorySource
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import example
from tests.ragen.evidence.conftest import LAKE
from tests.ragen.evidence.report.stored import rows


def read(store: Store, run: str, iteration: int, source: TrajectorySource | None = None, only: OneGroup | None = None):
    """The one group of an evaluation, read with all that the run has stored or with another source."""
    iterations = store.runs.iterations(run)
    at_iteration = [place for place in places(iterations) if place.iteration == iteration]
    (place,) = (place for place in at_iteration if place.kind == "episodes")
    source = source or TrajectorySource.of(store, store.runs.get(run), iterations)
    batch = read_evaluation(Reader(store), place, store.manifest("episodes", place.key), at_iteration, source, only)
    assert batch is not None
    (group,) = batch.groups
    assert batch.num_trajectories == len(group["members"])
    return group


def evaluation(store: Store, run: str, tables: dict[str, pa.Table], **settings) -> None:
    """Store an evaluation as the first and only stage of a new run."""
    store.runs.create(run, flow="starpo", preset=None, config={"environment": {"type": "sokoban"}})
    facts = Facts(key="a" * 32, stage=Stage(name="evaluate", version=5), settings=settings, inputs={}, seed=0)
    for kind, table in tables.items():
        store.put_table(kind, table, facts)
    store.runs.record_stage(run, 0, "evaluate:sokoban", dict.fromkeys(tables, facts.key))


def test_episode_is_shown_as_trajectory(stored_run: Store) -> None:
    group = read(stored_run, "hostile", 2)
    assert group["reason"] == ""
    stored = {
        (row["trajectory_id"], row["turn"]): row for row in rows(stored_run, 2, "evaluate:sokoban", "episode_turns")
    }
    shown = {(member["id"], n): turn for member in group["members"] for n, turn in enumerate(member["turns"])}
    assert shown.keys() == stored.keys()
    for place, turn in shown.items():
        row = stored[place]
        assert turn["ids"] == row["response_ids"][: len(turn["ids"])] != []
        assert turn["surprisals"] == [round(-1000 * value) for value in row["behaviour_logprobs"][: len(turn["ids"])]]
        assert sum(turn["lengths"]) == len(turn["response"].encode("utf-16-le")) // 2
        assert (turn["think"], turn["status"], turn["left"]) == (row["think"], row["status"], row["actions_left"])
        assert sum(tokens for *_, tokens, _ in turn["prompt"]["added"]) == len(row["prompt_ids"])
        assert row["observation"] in "".join(text for _, text, *_ in turn["prompt"]["added"])
        assert turn["total"] == pytest.approx(sum(row["action_rewards"]))
        assert len(turn["frames"]) == len(row["executed_actions"]) + 1
    episodes = rows(stored_run, 2, "evaluate:sokoban", "episodes")
    for member, episode in zip(group["members"], episodes, strict=True):
        assert member["return"] == pytest.approx(episode["episode_return"])
        assert (member["status"], member["errors"]) == (episode["status"], episode["num_format_errors"])
        assert (member["success"], member["sample"]) == (episode["success"], None)


def test_one_prompt_of_panel_is_whole(stored_run: Store) -> None:
    everything = read(stored_run, "hostile", 2)
    for wanted, whole in (("p0001-0", "p0001-0"), ("p0009-0", "p0000-0"), (None, "p0000-0")):
        group = read(stored_run, "hostile", 2, only=OneGroup(trajectory=wanted))
        assert [member["id"] for member in group["members"] if member["turns"]] == [whole]
        for member, one in zip(group["members"], everything["members"], strict=True):
            assert {**member, "turns": None, "drawn": None} == {**one, "turns": None, "drawn": None}
            assert member["turns"] in (None, one["turns"])


@pytest.mark.parametrize("has_turns", [True, False])
def test_failed_episode_is_in_no_statistic(tmp_path: Path, has_turns: bool) -> None:
    (row,) = example("turns").slice(0, 1).to_pylist()
    good = row | {"success": True, "status": "ok", "turn": 0, "terminated": True}
    failed = {**good, "trajectory_id": "p0001-0", "group_id": "p0001", "env_seed": good["env_seed"] + 1}
    failed |= {"success": False, "status": "env_error", "terminated": False}
    for name, played, success in (("both", [good, failed], 1.0), ("failed", [failed], None)):
        store = Store(str(tmp_path / name))
        turns = pa.Table.from_pylist(played, schema=example("turns").schema)
        tables = {"episodes": fold_episodes(turns, "sokoban", 0.5)}
        tables |= {"episode_turns": episode_turns(turns, has_tokens=True)} if has_turns else {}
        evaluation(store, "mine", tables)
        group = read(store, "mine", 0)
        assert [member["valid"] for member in group["members"]] == [one is good for one in played]
        assert group["success"] == success


@pytest.mark.parametrize("is_damaged", [True, False])
def test_episode_without_turns_says_so(damaged_run: Store, is_damaged: bool) -> None:
    keys = dict(damaged_run.runs.iteration("hostile", 2)["evaluate:sokoban"])
    if is_damaged:
        shutil.rmtree(Path(damaged_run.url, "episode_turns", keys["episode_turns"]))
    else:  # as before stage version 5
        damaged_run.runs.record_stage("hostile", 2, "evaluate:sokoban", {"episodes": keys.pop("episodes")})
    group = read(damaged_run, "hostile", 2)
    words = "cannot be read" if is_damaged else "are not stored"
    assert group["reason"].startswith(f"The turns of these episodes {words} (dataset episode_turns)")
    episodes = rows(damaged_run, 2, "evaluate:sokoban", "episodes")
    for member, episode in zip(group["members"], episodes, strict=True):
        assert [turn["observation"] for turn in member["turns"]] == episode["observations"]
        assert [" || ".join(turn["executed"]) for turn in member["turns"]] == episode["actions"]
        assert not any(turn["ids"] or turn["prompt"] for turn in member["turns"])


def test_missing_tokenizer_is_named(stored_run: Store) -> None:
    group = read(stored_run, "hostile", 2, source=TrajectorySource(None, None, None))
    assert group["reason"].endswith("no checkpoint with the tokenizer is in the store.")
    turn = group["members"][0]["turns"][0]
    assert (turn["prompt"], turn["lengths"]) == (None, None)
    assert turn["ids"]


def test_text_of_server_has_prompt(stored_run: Store, tmp_path: Path) -> None:
    """A server answers with text, and says no log-probs: its prompts are known all the same."""
    keys = stored_run.runs.iteration("hostile", 2)["evaluate:sokoban"]
    turns = stored_run.read_table("episode_turns", keys["episode_turns"]).to_pylist()
    silent = [row | {"behaviour_logprobs": [float("nan")] * len(row["response_ids"])} for row in turns]
    table = pa.Table.from_pylist(silent, schema=example("turns").schema)
    store = Store(str(tmp_path / "server"))
    tables = {
        "episode_turns": episode_turns(table, has_tokens=False),
        "episodes": stored_run.read_table("episodes", keys["episodes"]),
    }
    evaluation(store, "served", tables)
    source = TrajectorySource.of(stored_run, stored_run.runs.get("hostile"), stored_run.runs.iterations("hostile"))
    for member in read(store, "served", 0, source)["members"]:
        assert all(turn["prompt"] and turn["ids"] == turn["surprisals"] == [] for turn in member["turns"])


def test_pictures_of_panel_stand_in_prompts(visual_run: Store, tmp_path: Path) -> None:
    keys = visual_run.runs.iteration("seen", 0)["rollout"]
    turns = visual_run.read_table("turns", keys["turns"])
    tables = {kind: visual_run.read_table(kind, keys[kind]) for kind in ("images", "turn_images")}
    tables["episode_turns"] = episode_turns(turns, has_tokens=True)
    tables["episodes"] = fold_episodes(turns, "frozen_lake", 0.5)
    store = Store(str(tmp_path / "evaluated"))
    evaluation(store, "seen", tables, environment=LAKE.model_dump(mode="json"), images=True)
    source = TrajectorySource.of(visual_run, visual_run.runs.get("seen"), visual_run.runs.iterations("seen"))
    (member,) = read(store, "seen", 0, replace(source, settings=None))["members"]
    shown = [row["image"] for row in visual_run.read_table("turn_images", keys["turn_images"]).to_pylist()]
    assert [image for turn in member["turns"] for *_, images in turn["prompt"]["added"] for image in images] == shown
    assert member["drawn"]
