import gzip
import json

import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.reading import Reader, places
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.rollouts import read_rollout
from starpo.ragen.evidence.report.trajectory import TrajectorySource
from starpo.ragen.evidence.report.words import embedded_words
from starpo.ragen.store import Store


@pytest.fixture(scope="module")
def data(stored_run: Store):
    return gather(stored_run, "hostile")


def unpacked(packed: bytes):
    return json.loads(gzip.decompress(packed))["groups"]


def rollouts(data) -> list[int]:
    return [embedded.iteration for embedded in data.rollouts]


@pytest.mark.ci
def test_every_stage_metric_is_series(data) -> None:
    assert data.series["evaluation/sokoban/success"] == pytest.approx({0: 0.2, 1: 0.3, 2: 0.4, 3: 0.5, 4: 0.6})
    assert list(data.series["rollout/success_rate"]) == [0, 1, 2, 3]


def test_decisions_of_groups_best_first(data) -> None:
    # four iterations of three groups; half of three groups kept is one or two
    assert [(d.iteration, d.rank) for d in data.decisions] == [(i, r) for i in range(4) for r in range(3)]
    assert {d.is_kept for d in data.decisions} == {True, False}
    assert all(d.reason for d in data.decisions)
    assert {d.num_trajectories for d in data.decisions} == {2}


def test_trajectories_whole_and_unchanged(data, stored_run: Store, huge_text: str) -> None:
    keys = stored_run.runs.iterations("hostile")[2]["rollout"]
    stored = {(r["trajectory_id"], r["turn"]): r for r in stored_run.read_table("turns", keys["turns"]).to_pylist()}
    shown = {
        (member["id"], number): turn
        for group in unpacked(data.rollouts[2].packed)
        for member in group["members"]
        for number, turn in enumerate(member["turns"])
    }
    assert shown.keys() == stored.keys()
    for place, turn in shown.items():
        row = stored[place]
        assert (turn["think"], turn["observation"]) == (row["think"], row["observation"])
        assert turn["response"] == row["response"][:20_000]
        assert turn["cut"].get("response", 0) == max(0, len(row["response"]) - 20_000)
        assert len(turn["frames"]) == len(row["executed_actions"]) + 1
        assert turn["total"] == pytest.approx(sum(turn["components"].values()))
    assert any(row["response"] == huge_text for row in stored.values())


def test_rows_may_lie_in_any_order(stored_run: Store) -> None:
    class Backwards(Reader):
        def table(self, place, columns=None):
            table = super().table(place, columns)
            return table if place.kind != "turns" else table.take(list(range(table.num_rows))[::-1])

    at_first = [place for place in places(stored_run.runs.iterations("hostile")) if place.iteration == 0]
    members = [
        {member["id"]: member["turns"] for group in batch.groups for member in group["members"]}
        for batch in (
            read_rollout(kind(stored_run), at_first, TrajectorySource(None, None, None)) for kind in (Reader, Backwards)
        )
    ]
    assert members[0] == members[1]
    assert any(len(turns) > 1 for turns in members[0].values())


def test_tokens_spell_the_response_as_sampled(data) -> None:
    for group in unpacked(data.rollouts[0].packed):
        for member in group["members"]:
            for turn in member["turns"]:
                assert len(turn["ids"]) == len(turn["lengths"]) == len(turn["surprisals"])
                assert sum(turn["lengths"]) == len(turn["response"].encode("utf-16-le")) // 2
                assert turn["surprisals"][:4] == [0, 500, 1000, 1500][: len(turn["ids"])]


def test_evaluated_episodes_embedded_with_boards(data, stored_run: Store) -> None:
    assert [(e.iteration, e.cell, e.num_trajectories) for e in data.evaluations] == [
        (i, "sokoban", 3) for i in (0, 2, 4)
    ]
    keys = stored_run.runs.iteration("hostile", 2)["evaluate:sokoban"]
    stored = stored_run.read_table("episodes", keys["episodes"]).to_pylist()
    (group,) = unpacked(data.evaluations[1].packed)
    for number, (row, member) in enumerate(zip(stored, group["members"], strict=True)):
        assert member["id"] == f"p{number:04d}-0"
        assert member["drawn"]
        assert [turn["observation"] for turn in member["turns"]] == row["observations"]
        assert sum(turn["total"] for turn in member["turns"]) == pytest.approx(row["episode_return"])
        assert [" || ".join(turn["executed"]) for turn in member["turns"]] == row["actions"]


def test_small_budget_embeds_a_part(stored_run: Store, data) -> None:
    small = gather(stored_run, "hostile", max_rollout_bytes=1, max_evaluation_bytes=1)
    assert [(e.iteration, e.num_trajectories, e.num_all) for e in small.rollouts] == [(3, 2, 6)]
    assert [e.iteration for e in small.evaluations] == [4]
    assert small.series == data.series
    assert small.decisions == data.decisions


@pytest.mark.ci
def test_wanted_iteration_ignores_limit(stored_run: Store) -> None:
    assert rollouts(gather(stored_run, "hostile", wanted=[2], max_sampled_iterations=1)) == [2, 3]
    with pytest.raises(ConfigError, match="run hostile has no rollout at iteration 9; it has 0 to 3"):
        gather(stored_run, "hostile", wanted=[9])


@pytest.mark.ci
def test_reused_trajectories_counted_once(damaged_run: Store) -> None:
    recorded = damaged_run.runs.iterations("hostile")
    for stage in ("rollout", "reward", "variance_filter"):
        damaged_run.runs.record_stage("hostile", 1, stage, recorded[0][stage])  # as with Online-k
    data = gather(damaged_run, "hostile")
    assert (data.collected, data.num_iterations, rollouts(data)) == ([0, 2, 3], 4, [0, 2, 3])
    assert embedded_words(data)[0].startswith("All 18 training trajectories of the run are in this page.")
    assert rollouts(gather(damaged_run, "hostile", wanted=[1])) == [0, 1, 2, 3]


def test_replay_ends_are_distinguished(damaged_run: Store) -> None:
    evaluated = damaged_run.runs.iterations("hostile")[4]["evaluate:sokoban"]
    damaged_run.runs.record_stage("hostile", 4, "evaluate_base:sokoban", evaluated)
    cells = [e.cell for e in gather(damaged_run, "hostile").evaluations if e.iteration == 4]
    assert cells == ["sokoban", "sokoban of the base run"]


def test_new_run_has_no_trajectories(tmp_path) -> None:
    store = Store(str(tmp_path))
    store.runs.create("new", flow="starpo", preset=None, config={"environment": {"type": "bandit"}})
    data = gather(store, "new")
    assert (data.rollouts, data.series, data.decisions, data.num_iterations) == ([], {}, [], 0)
    assert data.state is None
    assert data.missing == []


@pytest.mark.ci
def test_unknown_environment_is_not_drawn(damaged_run: Store, tmp_path) -> None:
    path = tmp_path / "store" / "runs" / "hostile" / "run.json"
    path.write_text(path.read_text().replace('"type": "sokoban"', '"type": "no_such_world"'))
    data = gather(damaged_run, "hostile")
    assert all(e.num_not_drawn == e.num_all == 6 for e in data.rollouts)
    assert data.missing == []
