"""Each answer is stored once and found again by the same question; damage is noticed."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, NotAskedError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.inventory import take_inventory
from starpo.ragen.store.remote.opening import open_location
from tests.examples import put_folder

QUESTION = {"model": "m", "prompt": "Is it?", "template": "{think}"}


def test_first_answer_is_kept(store: Store) -> None:
    assert store.answers.get(QUESTION) is None
    store.answers.put(QUESTION, "YES")
    store.answers.put(QUESTION, "NO")
    assert store.answers.get(dict(reversed(QUESTION.items()))) == "YES"
    assert store.answers.get({**QUESTION, "model": "n"}) is None


def test_another_store_may_stand_behind(store: Store, tmp_path: Path) -> None:
    front = Store(str(tmp_path / "front"))
    store.answers.put(QUESTION, "YES")
    front.answers.behind = store.answers
    assert front.answers.get(QUESTION) == "YES"
    front.answers.put({**QUESTION, "model": "n"}, "NO")
    assert store.answers.get({**QUESTION, "model": "n"}) is None
    assert front.answers.get({**QUESTION, "model": "n"}) == "NO"
    with pytest.raises(NotAskedError, match=r"is not in .*/store \(answers/.*a comparison asks no new questions"):
        front.answers.get({**QUESTION, "model": "o"})


@pytest.mark.parametrize("change", [("YES", "NO"), ("Is it?", "Was it?"), ("}", ""), ('"answer"', '"said"')])
def test_damage_shows(local: Store, change: tuple[str, str]) -> None:
    local.answers.put(QUESTION, "YES")
    (file,) = Path(local.url).glob("answers/??/*.json")
    file.write_text(file.read_text().replace(*change, 1))
    with pytest.raises(
        ArtifactDamagedError, match=r"answers/.*\.json is damaged: delete it, and the question is asked"
    ):
        local.answers.get(QUESTION)


def test_many_at_once_leave_one_answer(local: Store) -> None:
    def heard(number: int) -> str | None:
        local.answers.put(QUESTION, str(number))
        return local.answers.get(QUESTION)

    with ThreadPoolExecutor(8) as threads:
        (answer,) = set(threads.map(heard, range(8)))
    assert answer in "01234567"


def test_they_are_no_artifacts(local: Store, make_run) -> None:
    make_run(local, "a")
    before = take_inventory(open_location(local.url))
    local.answers.put(QUESTION, "YES")
    assert take_inventory(open_location(local.url)) == before


def test_no_artifact_can_take_their_place(local: Store, tmp_path: Path, work: dict) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(StoreError, match="'answers' cannot be a kind"):
        put_folder(local, "answers", str(tmp_path / "file"), work)
