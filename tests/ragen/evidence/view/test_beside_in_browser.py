"""The same state at other checkpoints and in other runs, put beside each other on a live page."""

import pytest

from starpo.ragen.store import Store
from tests.ragen.evidence.view.conftest import Browser, panel_episodes, store_evaluation

pytestmark = pytest.mark.ci
CHOICE = ".controls [aria-label='Trajectory of the same state to show beside']"


@pytest.fixture
def page(browser: Browser, served: str, store: Store) -> Browser:
    """An episode of the last evaluation; another run has played its state differently, under another name."""
    store_evaluation(store, "other", 3, panel_episodes(4, 5, 1))
    browser.driver.get("about:blank")
    browser.driver.get(f"{served}/run/hostile#iteration=4&source=sokoban&trajectory=p0001-0")
    browser.wait_for("document.querySelectorAll('.controls optgroup').length === 2")
    yield browser
    browser.driver.get("about:blank")


def fetched(page: Browser) -> list[str]:
    return [name for name in page.complaints() if "/trajectories?" in name]


def test_checkpoints_come_without_their_evaluations(page: Browser, served: str) -> None:
    assert [text.split(" ")[0] for text in page.texts(".checkpoints a")] == ["0", "2", "4"]
    assert fetched(page) == [f"{served}/run/hostile/trajectories?iteration=4&source=sokoban&trajectory=p0001-0"]
    page.follow(".elsewhere .contrast")
    assert page.text(".trajectory-title").endswith("beside that of iteration 0")
    assert fetched(page)[1:] == [f"{served}/run/hostile/trajectories?iteration=0&source=sokoban&trajectory=p0001-0"]
    page.follow(".members a:last-child")  # the next prompt, at both checkpoints
    assert page.text(".trajectory-title").endswith("p0002-0 beside that of iteration 0")
    assert fetched(page)[2:] == [
        f"{served}/run/hostile/trajectories?iteration={iteration}&source=sokoban&trajectory=p0002-0"
        for iteration in (4, 0)
    ]
    for side in ("Iteration 0", "Iteration 4"):
        assert page.count(f".pair .turns[data-side='{side}'] .token") > 0
        assert page.count(f".pair .turns[data-side='{side}'] .prompt") > 0


def test_other_run_is_put_beside(page: Browser, store: Store, served: str) -> None:
    [value] = page.run(
        "return Array.from(document.querySelectorAll('optgroup[label=\"Other runs\"] option'), (o) => o.value)"
    )
    assert value == "other/3:p0002-0"
    page.put(CHOICE, value)
    page.wait_for("document.querySelector('.trajectory.pair') !== null")
    assert [text.rpartition(" ")[0] for text in page.texts(".pair .head h4")] == [
        "hostile, iteration 4",
        "other, iteration 3",
    ]
    first, second = (
        store.read_table("episodes", store.runs.iteration(run, iteration)["evaluate:sokoban"]["episodes"]).to_pylist()[
            row
        ]
        for run, iteration, row in (("hostile", 4, 1), ("other", 3, 2))
    )
    assert first["initial_state_digest"] == second["initial_state_digest"]
    assert first["actions"] != second["actions"]
    words = [
        [", ".join(turn.split(" || ")) or "no action" for turn in episode["actions"]] for episode in (first, second)
    ]
    part = next(turn for turn, (one, other) in enumerate(zip(*words, strict=False)) if one != other)
    assert page.text(".parting") == f"They part here: {words[0][part]} against {words[1][part]}"
    page.wait_for("document.querySelector('optgroup[label=other] option') !== null")
    assert page.run("return document.querySelector(arguments[0]).value", CHOICE) == value
    assert fetched(page)[1:] == [f"{served}/run/other/trajectories?iteration=3&source=sokoban&trajectory=p0002-0"]
    words = "The turns of these episodes are not stored"  # of the other run
    assert page.texts(".screen")[1].startswith(words)


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        ("other/3:p0001-0", "p0001-0 began in another state"),
        ("other/4:p0001-0", "run other has no evaluation sokoban at iteration 4"),
        ("../3:p0001-0", "Not Found"),
        ("<img src=x>/3:p0001-0", "'<img src=x>' cannot be a run name"),
    ],
)
def test_what_cannot_stand_beside(page: Browser, beside: str, words: str) -> None:
    page.run("location.hash += `&beside=${encodeURIComponent(arguments[0])}`", beside)
    page.wait_for("document.documentElement.dataset.ready === location.hash")
    assert words in page.text(".about b")
    assert page.count(".trajectory.pair") == 0


def test_address_opens_its_pair_at_once(browser: Browser, served: str, store: Store) -> None:
    browser.driver.get("about:blank")
    browser.driver.get(f"{served}/run/hostile#iteration=4&source=sokoban&trajectory=p0001-0&beside=2%3Ap0001-0")
    browser.wait_for("document.documentElement.dataset.ready")
    assert browser.text(".trajectory-title").endswith("episode p0001-0 beside that of iteration 2")
    browser.driver.get("about:blank")
