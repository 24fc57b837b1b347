"""What the addresses of the live pages answer, and whom."""

import html
import json

import pytest
from starlette.testclient import TestClient

from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.evidence.view import listing
from starpo.ragen.evidence.view.app import application
from starpo.ragen.evidence.view.guard import Guard
from starpo.ragen.evidence.view.reading import StoreReader
from starpo.ragen.store import Store
from tests.ragen.evidence.report.stored import rows

RUN = "/run/hostile"


def client_of(store: Store, token: str = "", host: str = "127.0.0.1:4280") -> TestClient:
    return TestClient(Guard(application(StoreReader(store)), 4280, token), base_url=f"http://{host}")


@pytest.fixture
def client(store: Store) -> TestClient:
    return client_of(store)


def test_runs_are_listed(client: TestClient, store: Store) -> None:
    store.runs.create("newer", flow="starpo", preset="smoke", config={"environment": {"type": "sokoban"}})
    listed = {run["run"]: run for run in client.get("/runs").json()["rows"]}
    assert set(listed) == {"hostile", "newer"}
    assert listed["hostile"]["created"] <= listed["newer"]["created"]  # to the second, so they may be equal
    assert [point["iteration"] for point in listed["hostile"]["curve"]] == [0, 2, 4]


def test_continued_run_is_listed_as_running(client: TestClient, store: Store) -> None:
    assert client.get("/runs").json()["rows"][0]["state"] == "failed"
    store.runs.set_state("hostile", "running", "rollout")
    assert client.get("/runs").json()["rows"][0]["state"] == "running"


def test_every_stored_iteration_has_trajectories(client: TestClient, store: Store) -> None:
    batches = client.get(f"{RUN}/data").json()["batches"]
    assert [batch["iteration"] for batch in batches if batch["cell"] is None] == [0, 1, 2, 3]
    for batch in batches:
        source = {} if batch["cell"] is None else {"source": batch["cell"]}
        got = client.get(f"{RUN}/trajectories", params={"iteration": batch["iteration"], **source}).json()
        assert sum(len(group["members"]) for group in got["groups"]) == batch["all"]


def test_one_group_has_its_turns(client: TestClient) -> None:
    def groups(**named: str) -> dict[str, list[dict[str, object]]]:
        got = client.get(f"{RUN}/trajectories", params={"iteration": 1, **named}).json()
        return {group["id"]: group["members"] for group in got["groups"]}

    first = groups()
    whole = {name: groups(group=name)[name] for name in first}
    assert [name for name in first if first[name][0]["turns"]] == list(first)[:1]
    for name, members in whole.items():
        assert groups(trajectory=str(members[-1]["id"]))[name] == members
        outlines = groups(group=next(other for other in first if other != name))[name]
        for outline, member in zip(outlines, members, strict=True):
            assert outline == member | {"turns": None, "drawn": True}
    assert groups(group="no such group") == first


def test_live_page_draws_what_report_draws(client: TestClient, store: Store) -> None:
    def drawn(page: str) -> dict[str, object]:
        text = page.partition('id="page-data">')[2].partition("</script>")[0]
        apart = ("batches", "images", "status", "other_panels")
        return {name: value for name, value in json.loads(text).items() if name not in apart}

    report, live = drawn(render_report(gather(store, "hostile"))), drawn(client.get(RUN).text)
    assert live == report


def test_only_what_is_new_is_sent(client: TestClient) -> None:
    whole, newer = (client.get(f"{RUN}/data", params={"since": since}).json() for since in (0, 2))
    for kind in ("decisions", "artifacts"):
        assert newer[kind] == [row for row in whole[kind] if row[0] >= 2] != whole[kind]
    assert newer["metrics"] == {
        name: [point for point in points if point[0] >= 2] for name, points in whole["metrics"].items()
    }
    assert newer["batches"] == [row for row in whole["batches"] if row["iteration"] >= 2]
    for panel, known in zip(newer["panels"], whole["panels"], strict=True):
        for line, before in zip(panel["lines"], known["lines"], strict=True):
            assert line["raw"] == [point for point in before["raw"] if point[0] >= 2]
    for kind in ("reasons", "origins", "head"):
        assert newer[kind] == whole[kind]
    assert "glossary" not in newer


def test_only_changed_runs_are_sent(client: TestClient, store: Store) -> None:
    first = client.get("/runs").json()
    assert (first["is_whole"], first["num_unread"]) == (True, 0)
    store.runs.create("newer", flow="starpo", preset="smoke", config={"environment": {"type": "sokoban"}})
    second = client.get("/runs", params={"since": first["number"]}).json()
    assert ([run["run"] for run in second["rows"]], second["is_whole"]) == (["newer"], False)
    store.runs.forget("newer")
    third = client.get("/runs", params={"since": second["number"]}).json()
    assert (third["rows"], third["gone"]) == ([], ["newer"])
    assert [run["run"] for run in client.get("/runs", params={"since": 7}).json()["rows"]] == ["hostile"]


def test_many_runs_come_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_READING_S", 0.0)
    monkeypatch.setattr(listing, "_CHUNK", 1)
    client = client_of(store)
    assert client.get("/runs").json()["num_unread"] == 1
    monkeypatch.setattr(listing, "_READING_S", 60.0)
    assert [run["run"] for run in client.get("/runs").json()["rows"]] == ["hostile"]


def test_new_stage_changes_version(client: TestClient, store: Store) -> None:
    before = client.get(f"{RUN}/status").json()["version"]
    store.runs.set_state("hostile", "running", "rollout")
    assert client.get(f"{RUN}/status").json()["version"] == before  # its state alone has changed
    store.runs.record_stage("hostile", 4, "reward", {"rewards": "0" * 64})
    after = client.get(f"{RUN}/status").json()["version"]
    assert after != before
    assert client.get(f"{RUN}/data").json()["version"] == after


def test_same_answer_is_not_sent_twice(client: TestClient) -> None:
    first = client.get(f"{RUN}/data")
    again = client.get(f"{RUN}/data", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/run/hostle", 404, "did you mean hostile?"),
        ("/run/hostile/trajectories?iteration=9", 404, "run hostile has no rollout at iteration 9"),
        ("/run/hostile/trajectories?iteration=0&source=../x", 404, "has no evaluation ../x at iteration 0"),
        ("/run/hostile/trajectories?iteration=-1", 400, "a whole number is expected"),
        ("/run/..%2f..%2fetc", 404, ""),
        ("/run/%00", 404, ""),
        ("/run/.git/data", 404, ""),
        ("/elsewhere", 404, ""),
    ],
)
def test_unknown_address_is_refused(client: TestClient, address: str, status: int, words: str) -> None:
    answer = client.get(address)
    assert answer.status_code == status
    assert words in answer.text
    assert "Traceback" not in answer.text


def test_damaged_and_deleted_parts_are_named(client: TestClient, store: Store) -> None:
    assert rows(store, 1, "rollout", "turns")
    key = store.runs.iteration("hostile", 1)["rollout"]["turns"]
    [part] = store.parts("turns", key, should_verify=False)
    part.write_bytes(b"no Parquet")
    answer = client.get(f"{RUN}/trajectories", params={"iteration": 1})
    assert answer.status_code == 404
    assert key in answer.text
    assert client.get(f"{RUN}/trajectories", params={"iteration": 0}).status_code == 200
    store.runs.forget("hostile")
    assert client.get(f"{RUN}/status").status_code == 404
    assert client.get("/runs").json()["rows"] == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:4280"}, 421),
        ({"Host": "127.0.0.1:80"}, 421),
        ({"Host": "localhost:4280"}, 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200),
    ],
)
def test_pages_of_other_sites_are_refused(client: TestClient, headers: dict[str, str], status: int) -> None:
    answer = client.get("/runs", headers=headers)
    assert answer.status_code == status
    assert answer.headers["X-Frame-Options"] == "DENY"


def test_only_reading_is_answered(client: TestClient) -> None:
    assert {client.request(method, "/runs").status_code for method in ("POST", "PUT", "DELETE", "OPTIONS")} == {405}


def test_other_machines_need_the_token(store: Store) -> None:
    client = client_of(store, "the-token", "10.1.2.3:4280")
    assert client.get("/runs").status_code == 401
    assert client.get("/runs", params={"token": "another"}).status_code == 401
    assert client.get("/", params={"token": "the-token"}).status_code == 200  # redirected, with a cookie
    assert client.get("/runs").status_code == 200
    client.cookies.clear()
    assert client.get("/runs").status_code == 401


def test_pages_forbid_other_connections(client: TestClient) -> None:
    for address in ("/", RUN):
        policy = client.get(address).text.partition('Policy" content="')[2].partition('"')[0]
        assert policy.startswith("default-src 'none'; ")
        assert "connect-src 'self'; script-src 'sha256-" in html.unescape(policy)


def hits_of(client: TestClient, **query: object) -> dict[str, object]:
    return client.get(f"{RUN}/search", params=query).json()


def test_search_finds_text_in_any_rollout(client: TestClient, store: Store, hostile_texts: tuple[str, ...]) -> None:
    wanted = hostile_texts[1].upper()
    texts: dict[tuple[int, str], list[str]] = {}
    for iteration in range(4):
        for row in rows(store, iteration, "rollout", "turns"):
            texts.setdefault((iteration, row["trajectory_id"]), []).append(row["response"] + row["observation"])
    expected = {place for place, spoken in texts.items() if any(wanted.lower() in text.lower() for text in spoken)}
    answer = hits_of(client, text=wanted)
    assert {(hit["iteration"], hit["trajectory"]) for hit in answer["hits"]} == expected != set()
    assert (answer["num_hits"], answer["num_searched"], answer["unread"]) == (len(expected), len(texts), [])
    assert answer["hits"][0]["excerpt"][1] == hostile_texts[1]
    assert [hit["iteration"] for hit in answer["hits"]] == sorted((place[0] for place in expected), reverse=True)


def test_search_by_outcome_return_and_filter(client: TestClient, store: Store) -> None:
    everything = hits_of(client)["hits"]
    assert hits_of(client, success="true")["hits"] == [hit for hit in everything if hit["success"]]
    assert hits_of(client, kept="false", first=1, last=2)["hits"] == [
        hit for hit in everything if not hit["kept"] and 1 <= hit["iteration"] <= 2
    ]
    middle = sorted(hit["return"] for hit in everything)[len(everything) // 2]
    assert hits_of(client, low=middle)["hits"] == [hit for hit in everything if hit["return"] >= middle]
    wrong = client.get(f"{RUN}/search", params={"first": "x'; DROP TABLE turns"})
    assert (wrong.status_code, wrong.text.partition(":")[0]) == (400, "first")


def test_search_says_what_cannot_be_read(client: TestClient, store: Store) -> None:
    [part] = store.parts("turns", store.runs.iteration("hostile", 1)["rollout"]["turns"])
    part.write_bytes(b"no Parquet")
    assert hits_of(client)["unread"] == [1]
