"""An episode's initial state at other checkpoints and in other runs, as the pages' server answers."""

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from starpo.ragen.evidence.view.app import application
from starpo.ragen.evidence.view.reading import StoreReader
from starpo.ragen.store import Store
from tests.ragen.evidence.report.stored import rows
from tests.ragen.evidence.view.conftest import panel_episodes, store_evaluation

SHOWN = {"iteration": 2, "source": "sokoban", "trajectory": "p0001-0"}


@pytest.fixture
def client(store: Store) -> TestClient:
    return TestClient(application(StoreReader(store)))


def answer_of(client: TestClient, what: str, run: str = "hostile", **more: object) -> dict[str, object]:
    return client.get(f"/run/{run}/{what}", params={**SHOWN, **more}).json()


def test_state_is_followed_over_checkpoints(client: TestClient, store: Store) -> None:
    stored = {iteration: rows(store, iteration, "evaluate:sokoban", "episodes")[1] for iteration in (0, 2, 4)}
    assert answer_of(client, "checkpoints") == {
        "episodes": [
            {
                "iteration": iteration,
                "trajectory": "p0001-0",
                "success": row["success"],
                "return": row["episode_return"],
            }
            for iteration, row in stored.items()
        ],
        "unread": [],
    }


def test_new_checkpoint_is_followed(client: TestClient, store: Store) -> None:
    assert len(answer_of(client, "checkpoints")["episodes"]) == 3
    store_evaluation(store, "hostile", 3, panel_episodes(7, 1))
    followed = answer_of(client, "checkpoints")["episodes"]
    assert [episode["iteration"] for episode in followed] == [0, 2, 3, 4]
    assert {episode["trajectory"] for episode in followed} == {"p0001-0"}
    store_evaluation(store, "hostile", 1, panel_episodes(1, 7))
    assert answer_of(client, "checkpoints")["episodes"][1]["trajectory"] == "p0000-0"  # by its state, not its name


def test_damaged_checkpoint_is_named(client: TestClient, store: Store) -> None:
    key = store.runs.iteration("hostile", 4)["evaluate:sokoban"]["episodes"]
    [part] = store.parts("episodes", key, should_verify=False)
    part.write_bytes(b"no Parquet")
    answer = answer_of(client, "checkpoints")
    assert [episode["iteration"] for episode in answer["episodes"]] == [0, 2]
    assert answer["unread"] == [4]
    assert client.get("/run/hostile/checkpoints", params={**SHOWN, "iteration": 4}).status_code == 404


def test_other_runs_share_the_state(client: TestClient, store: Store) -> None:
    alike = panel_episodes(5, 4, 1)
    for iteration in (0, 3, 8):
        store_evaluation(store, "alike", iteration, alike)
    store_evaluation(store, "elsewhere", 2, panel_episodes(4, 5))
    digests = pa.array(["0" * 16] * alike.num_rows, alike.schema.field("initial_state_digest").type)
    changed = alike.set_column(alike.schema.get_field_index("initial_state_digest"), "initial_state_digest", digests)
    store_evaluation(store, "other-world", 2, changed)  # the same seeds, but other states
    last = alike.to_pylist()[2]
    shared = {"trajectory": "p0002-0", "success": last["success"], "return": last["episode_return"]}
    assert answer_of(client, "other_runs") == {
        "episodes": [{"run": "alike", "iteration": 3, **shared}],
        "unread": [],
    }
    back = answer_of(client, "other_runs", "alike", iteration=8, trajectory="p0002-0")["episodes"]
    assert [(episode["run"], episode["iteration"], episode["trajectory"]) for episode in back] == [
        ("hostile", 4, "p0001-0")
    ]


def test_damaged_other_runs_are_named(client: TestClient, store: Store) -> None:
    keys = [store_evaluation(store, "alike", iteration, panel_episodes(1, iteration + 5)) for iteration in (1, 9)]
    for number, expected in enumerate(([9], None)):
        [part] = store.parts("episodes", keys[number], should_verify=False)
        part.write_bytes(b"no Parquet")
        fresh = TestClient(application(StoreReader(store)))
        answer = answer_of(fresh, "other_runs")
        assert [episode["iteration"] for episode in answer["episodes"]] == (expected or [])
        assert answer["unread"] == ([] if expected else ["alike"])


@pytest.mark.parametrize("what", ["checkpoints", "other_runs"])
@pytest.mark.parametrize(
    ("changed", "status", "words"),
    [
        ({"trajectory": "p0009-0"}, 404, "has no episode p0009-0"),
        ({"source": "../x"}, 404, "run hostile has no evaluation ../x at iteration 2"),
        ({"iteration": 1}, 404, "run hostile has no evaluation sokoban at iteration 1"),
        ({"iteration": "1e3"}, 400, "iteration: "),
        ({"trajectory": ""}, 400, "trajectory: "),
        ({"columns": "responses"}, 400, "columns: "),
    ],
)
def test_unknown_names_are_refused(client: TestClient, what: str, changed: dict, status: int, words: str) -> None:
    answer = client.get(f"/run/hostile/{what}", params={**SHOWN, **changed})
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


def test_unknown_run_is_refused(client: TestClient) -> None:
    answer = client.get("/run/hostle/checkpoints", params=SHOWN)
    assert (answer.status_code, "did you mean hostile?" in answer.text) == (404, True)
