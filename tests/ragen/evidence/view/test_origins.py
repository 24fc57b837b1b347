"""Where an artifact comes from, in all runs of a store, as the pages are told."""

import pytest

from starpo.ragen.evidence.audit.lineage import lineage
from starpo.ragen.evidence.view import origins
from starpo.ragen.store import Store
from tests.ragen.evidence.view.test_app import RUN, client_of


def test_relatives_are_those_of_the_lineage(store: Store) -> None:
    key = store.runs.iteration("hostile", 2)["rollout"]["turns"]
    answer = client_of(store).get(f"{RUN}/lineage", params={"artifact": f"turns/{key}"}).json()
    whole = lineage(store, f"turns/{key}")
    assert answer["root"] == {"key": key, "stage": "rollout", "names": [["hostile", "2", "rollout"]]}
    assert [work["key"] for work in answer["inputs"]] == [
        work.key for work in whole.works.values() if work.distance == -1
    ]
    assert answer["inputs"][0]["names"] == [["hostile", "0", "warm_start"]]
    assert {work["stage"] for work in answer["users"]} == {"reward", "variance_filter", "update"}
    assert answer["unreadable"] == 0


@pytest.mark.parametrize(
    "artifact", ["", "../../etc/passwd", "turns/../runs", "turns/%2e%2e", "x", "nobody:1:rollout", "*"]
)
def test_unknown_artifact_is_refused(store: Store, artifact: str) -> None:
    answer = client_of(store).get(f"{RUN}/lineage", params={"artifact": artifact})
    assert answer.status_code in (400, 404)
    assert "Traceback" not in answer.text


def test_large_store_is_not_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "_MAX_WORKS", 3)
    key = store.runs.iteration("hostile", 2)["rollout"]["turns"]
    answer = client_of(store).get(f"{RUN}/lineage", params={"artifact": f"turns/{key}"})
    assert answer.status_code == 400
    assert f"`starpo lineage turns/{key}` reads them all" in answer.text
