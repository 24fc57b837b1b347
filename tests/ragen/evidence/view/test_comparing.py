"""Runs beside each other: what the addresses of the compare page answer."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from starpo.ragen.agents.evaluation.comparison import compare_counts
from starpo.ragen.evidence.view.app import application
from starpo.ragen.evidence.view.comparing import MAX_RUNS
from starpo.ragen.evidence.view.guard import Guard
from starpo.ragen.evidence.view.reading import StoreReader
from starpo.ragen.store import Store
from tests.ragen.evidence.view.runs_to_compare import add_run, evaluate

HALF, MOST = [True, False] * 8, [True] * 15 + [False]


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


def client_of(store: Store, token: str = "") -> TestClient:
    return TestClient(Guard(application(StoreReader(store)), 4280, token), base_url="http://127.0.0.1:4280")


def compared(store: Store, *runs: str) -> dict[str, Any]:
    answer = client_of(store).get("/compare/data", params={"run": list(runs)})
    assert answer.status_code == 200, answer.text
    return answer.json()


def panel(comparison: dict[str, Any], title: str, of: str = "panels") -> dict[str, Any]:
    [drawn] = [panel for panel in comparison[of] if panel["title"] == title]
    return drawn


def test_difference_is_paired_by_state(empty: Store) -> None:
    add_run(empty, "a", [HALF, HALF])
    add_run(empty, "b", [HALF, MOST], lr=1)
    first, second = compared(empty, "a", "b")["rows"]
    counts = [{(n, f"{n:016x}"): (float(one), 1) for n, one in enumerate(of)} for of in (MOST, HALF)]
    expected = compare_counts(*counts)
    assert expected is not None
    assert first["difference"] is None
    assert second["difference"]["mean"] == pytest.approx(7 / 16)  # 15 of 16 minus 8 of 16
    assert (second["difference"]["low"], second["difference"]["high"]) == pytest.approx(
        (expected.low, expected.high), 1e-5
    )
    assert second["words"] == "higher than the first run; paired over 16 states, better on 7, worse on 0"
    assert [second["first"]["success"], second["last"]["success"], second["num_states"]] == [0.5, 0.9375, 16]


def test_equal_runs_differ_by_chance_alone(empty: Store) -> None:
    for name in ("a", "b"):
        add_run(empty, name, [HALF])
    row = compared(empty, "a", "b")["rows"][1]
    assert row["difference"]["low"] < 0 < row["difference"]["high"]
    assert row["words"].startswith("no difference that can be told from chance; paired over 16 states")
    assert row["first"] is None  # its first evaluation is its last


def test_unpaired_runs_have_a_reason(empty: Store) -> None:
    add_run(empty, "a", [HALF])
    add_run(empty, "elsewhere", [HALF], first_seed=100)
    add_run(empty, "other", [HALF], environment={"type": "bandit"})
    add_run(empty, "new")
    add_run(empty, "broken", [HALF])
    [part] = empty.parts("episodes", empty.runs.iteration("broken", 0)["evaluate:sokoban"]["episodes"])
    part.write_bytes(b"no Parquet")
    comparison = compared(empty, "a", "elsewhere", "other", "new", "broken")
    words = [row["words"] for row in comparison["rows"]]
    assert "not paired: the panels, of 16 and 16 states, share no state" in words[1]
    assert words[2:] == [
        "not compared: it is evaluated on bandit, the first run on sokoban",
        "not compared: it has no evaluation yet",
        "not compared: it has a last evaluation whose episodes cannot be read",
    ]
    assert panel(comparison, "Success on sokoban")["note"] == "share of its panel; not all on the same states"
    assert compared(empty, "new", "a")["rows"][1]["words"] == "not compared: the first run has no evaluation yet"


def test_curves_keep_their_colour(empty: Store) -> None:
    add_run(empty, "new", lr=1)
    add_run(empty, "a", [HALF, MOST], lr=2)
    add_run(empty, "b", [MOST, HALF], lr=3)
    comparison = compared(empty, "new", "a", "b")
    assert comparison["over_seeds"] is None
    drawn = panel(comparison, "Success on sokoban")
    assert [(line["label"], line["colour"]) for line in drawn["lines"]] == [("a", 1), ("b", 2)]
    assert drawn["lines"][0]["raw"] == [[0, 0.5], [1, 0.9375]]
    assert drawn["lines"][0]["band"][0] == [0, 0.4, 0.6]
    assert not drawn["lines"][0]["is_range"]


def test_seeds_are_one_line(empty: Store) -> None:
    add_run(empty, "s0", [HALF, HALF, HALF], seed=0)
    add_run(empty, "s1", [MOST, HALF], seed=1)
    add_run(empty, "other", [MOST], seed=1, preset="another", lr=2)
    add_run(empty, "rebuilt", [MOST], seed=3, preset="third", code={"rollout": "2"})
    comparison = compared(empty, "s0", "s1", "other", "rebuilt")
    drawn = panel(comparison, "Success on sokoban", "over_seeds")
    assert [line["label"] for line in drawn["lines"]] == ["seeds 0, 1 of mine", "other", "rebuilt"]
    assert [row["words"].endswith("what a seed changes") for row in comparison["rows"]] == [False, True, False, False]
    assert comparison["colours_over_seeds"] == [0, 0, 1, 2]
    # at iteration 2, which one of the seeds lacks, there is no mean; (8 + 15) / 32 = 0.71875
    assert drawn["lines"][0]["raw"] == [[0, 0.71875], [1, 0.5]]
    assert drawn["lines"][0]["band"] == [[0, 0.5, 0.9375], [1, 0.5, 0.5]]
    assert [line["is_range"] for line in drawn["lines"]] == [True, False, False]
    assert len(panel(comparison, "Success on sokoban")["lines"]) == 4


def test_differing_settings_and_code_are_named(empty: Store) -> None:
    attack = "<img src=x onerror=alert(1)>"
    add_run(empty, "a", filter={"keep": 0.5}, code={"rollout": "1", "reward": "1"})
    add_run(empty, "b", filter={"keep": 0.25}, note=attack, code={"rollout": "2", "reward": "1"})
    comparison = compared(empty, "a", "b")
    assert comparison["settings"] == [["filter.keep", "0.5", "0.25"], ["note", "absent", attack]]
    assert comparison["code"] == [["rollout", "1", "2"]]
    assert comparison["commands"][0] == ["starpo", "compare", "a", "b", "--store", empty.url]
    page = client_of(empty).get("/compare", params={"run": ["a", "b"]}).text
    assert "<img" not in page
    assert json.loads(page.partition('id="page-data">')[2].partition("</script>")[0])["runs"] == ["a", "b"]


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/compare", 400, "no run is chosen"),
        ("/compare?run=", 400, "no run is chosen"),
        ("/compare?runs=a", 400, "runs: only run can be chosen"),
        ("/compare?" + "&".join(f"run=a{n}" for n in range(MAX_RUNS + 1)), 400, "13 runs are chosen: at most 12"),
        ("/compare?run=nobody", 404, "there is no run 'nobody'"),
        ("/compare?run=..%2f..%2fetc&run=%00", 404, "cannot be a run name"),
        ("/compare/status", 400, "no run is chosen"),
        ("/compare/data?run=nobody", 404, "there is no run 'nobody'"),
    ],
)
def test_bad_address_is_answered_in_words(empty: Store, address: str, status: int, words: str) -> None:
    add_run(empty, "a")
    answer = client_of(empty).get(address)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "text/plain; charset=utf-8")
    assert words in answer.text
    assert "Traceback" not in answer.text


def test_unknown_runs_are_named_beside_others(empty: Store) -> None:
    add_run(empty, "a", [HALF])
    comparison = compared(empty, "a", "nobody", "a")
    assert comparison["runs"] == ["a"]
    assert "there is no run 'nobody'" in comparison["refused"][0]


def test_version_changes_with_any_run(empty: Store) -> None:
    for name in ("a", "b"):
        add_run(empty, name, [HALF])
    client, runs = client_of(empty), {"run": ["a", "b", "later"]}
    versions = [client.get("/compare/status", params=runs).json()["version"]]
    evaluate(empty, "b", 1, MOST)
    versions.append(client.get("/compare/status", params=runs).json()["version"])
    assert client.get("/compare/data", params=runs).json()["rows"][1]["last"]["success"] == 0.9375
    add_run(empty, "later")
    versions.append(client.get("/compare/status", params=runs).json()["version"])
    assert len(set(versions)) == 3
    empty.runs.set_state("a", "running", "rollout")
    status = client.get("/compare/status", params=runs).json()
    assert (status["version"], status["status"]["a"]["activity"]) == (versions[2], "rollout")


def test_token_leaves_the_chosen_runs(empty: Store) -> None:
    add_run(empty, "a")
    answer = client_of(empty, "the-token").get(
        "/compare", params={"run": ["a", "b"], "token": "the-token"}, follow_redirects=False
    )
    assert answer.headers["Location"] == "/compare?run=a&run=b"
