"""Two trajectories of the same state beside each other, in a real browser."""

import pytest

from starpo.ragen.store import Store
from tests.ragen.evidence.report.stored import rows

pytestmark = pytest.mark.ci
ITERATION, GROUP = 1, "i1-g0"
WORDS = "the same actions throughout, from here in other words"


@pytest.fixture
def pair(stored_run: Store) -> list[list[list[str]]]:
    """Executed actions of each turn, of each of the two members."""
    stored = [row for row in rows(stored_run, ITERATION, "rollout", "turns") if row["group_id"] == GROUP]
    return [
        [row["executed_actions"] for row in sorted(stored, key=lambda row: row["turn"]) if row["member"] == member]
        for member in (0, 1)
    ]


def in_words(turns: list[list[str]], turn: int) -> str:
    if turn >= len(turns):
        return "nothing, as it had ended"
    return ", ".join(turns[turn]) or "no action"


def test_members_are_aligned_and_part(page, pair) -> None:
    page.go(f"#iteration={ITERATION}&trajectory={GROUP}-0&beside={GROUP}-1")
    part = next(turn for turn in range(3) if pair[0][turn : turn + 1] != pair[1][turn : turn + 1])
    words = f"{in_words(pair[0], part)} against {in_words(pair[1], part)}"
    assert page.texts(".pair .head h4") == ["Member 0 failed", "Member 1 failed"]
    assert page.text(".parts") == f"They part at turn {part}: {words}."
    assert page.texts(".parting") == [f"They part here: {words}"]
    assert page.run(
        "return document.querySelector('.parting').nextElementSibling.querySelector('.turn').dataset.turn"
    ) == str(part)
    for turn in range(min(map(len, pair))):
        boxes = page.run(
            "return Array.from(document.querySelectorAll(arguments[0]), (e) => e.getBoundingClientRect())"
            ".map(({ top, height }) => [top, height])",
            f".pair .turn[data-turn='{turn}']",
        )
        assert len(boxes) == 2
        assert boxes[0] == pytest.approx(boxes[1], abs=0.5)


def test_films_of_two_go_in_step(page, pair) -> None:
    page.go(f"#iteration={ITERATION}&trajectory={GROUP}-0&beside={GROUP}-1")
    steps = [
        (turn, action)
        for turn in range(max(map(len, pair)))
        for action in range(1 + max(len(turns[turn]) for turns in pair if turn < len(turns)))
    ]
    assert page.count(".player input") == 1
    for number, (turn, action) in enumerate(steps):
        assert page.text(".player .caption").endswith(f"frame {number + 1} of {len(steps)}")
        for side, turns in enumerate(pair):
            at = min(turn, len(turns) - 1)
            place = len(turns[at]) if at < turn else min(action, len(turns[at]))
            frame = f".pair > [data-side='Member {side}'] [data-turn='{at}'] .frame:nth-child({place + 1})"
            shown = page.run("return document.querySelectorAll('.screen')[arguments[0]].innerHTML", side)
            assert page.run("return document.querySelector(arguments[0]).matches('.current')", frame)
            # labels differ: "after Left" in the strip, "Left -0.1" in the film
            drawn = page.run("return document.querySelector(arguments[0]).innerHTML", f"{frame} svg")
            assert drawn in shown
            is_over = at == len(turns) - 1 and (at < turn or action > len(turns[at]))
            assert page.texts(".player .caption")[side].count("it has ended") == is_over
        page.press(".player", "ArrowRight")


def test_checkpoints_are_put_beside(page, stored_run: Store) -> None:
    page.go("#iteration=4&source=sokoban&trajectory=p0001-0")
    page.wait_for("document.querySelector('.elsewhere .contrast')")
    assert page.text(".elsewhere .contrast") == "Show it beside the first checkpoint's"
    page.follow(".elsewhere .contrast")
    assert page.run("return location.hash").endswith("&beside=0%3Ap0001-0")
    assert page.text(".trajectory-title").endswith("episode p0001-0 beside that of iteration 0")
    assert [text.split(" ")[1] for text in page.texts(".pair .head h4")] == ["0", "4"]  # before, then after
    assert page.text(".parts").startswith("They never part")  # every evaluation of this run plays the same
    assert page.count(".parting") == 0
    choice = ".controls [aria-label='Trajectory of the same state to show beside']"
    page.wait_for("document.querySelectorAll('.controls optgroup option').length === 2")
    assert page.run("return document.querySelector(arguments[0]).value", choice) == "0:p0001-0"
    page.put(choice, "2:p0001-0")
    page.wait_for("document.querySelector('.trajectory-title').textContent.endsWith('beside that of iteration 2')")
    page.follow(".members a:last-child")  # the next state of the panel, at the same two checkpoints
    assert page.text(".trajectory-title").endswith("episode p0002-0 beside that of iteration 2")


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        ("p0002-0", "p0002-0 is no member of its group"),
        ("2:p0002-0", "p0002-0 began in another state"),
        ("2:p0009-0", "there is no p0009-0 at iteration 2"),
        ("3:p0001-0", "iteration 3 of sokoban is not in this page"),
        ("other/2:p0001-0", "other runs can be shown on the live page: starpo view hostile"),
        (
            "<img src=x onerror=\"document.title='owned'\">",
            "<img src=x onerror=\"document.title='owned'\"> is no member",
        ),
    ],
)
def test_what_cannot_stand_beside(page, beside: str, words: str) -> None:
    page.go("#iteration=0")  # else the address might stay the same
    page.run(
        "location.hash = `iteration=4&source=sokoban&trajectory=p0001-0&beside=${encodeURIComponent(arguments[0])}`",
        beside,
    )
    page.wait_for("document.documentElement.dataset.ready === location.hash")
    assert words in page.text(".about b")
    assert page.count(".trajectory.pair") == 0
    assert page.text(".trajectory-title").endswith("episode p0001-0")


def turns(*played: tuple[str, str], response: str = "r") -> dict[str, object]:
    """Trajectory of turns, each of its actions and the states before and after them, a letter each."""
    return {
        "turns": [
            {
                "executed": actions.split(),
                "rewards": [0] * len(actions.split()),
                "frames": [{"text": letter} for letter in states],
                "response": response,
            }
            for actions, states in played
        ]
    }


@pytest.mark.parametrize(
    ("one", "other", "turn", "action", "words"),
    [
        (turns(("L U", "abc")), turns(("L R", "abd")), 0, 2, "L, U against L, R"),
        (turns(("L", "ab"), ("U", "bc")), turns(("L", "ab"), ("", "b")), 1, 1, "U against no action"),
        (turns(("L", "ab"), ("U", "bc")), turns(("L", "ab")), 1, 0, "U against nothing, as it had ended"),
        (turns(("L U", "abc")), turns(("L R", "axd")), 0, 1, "the same L, followed by another state"),
        (turns(("L", "")), turns(("R", "")), 0, 1, "L against R"),  # not drawn
        (turns(("L", "ab")), turns(("L", "ab"), response="s"), 0, 0, WORDS),
    ],
)  # fmt: skip
def test_first_difference_is_the_parting(page, one, other, turn: int, action: int, words: str) -> None:
    parting = page.run("return partingOf(arguments[0], arguments[1])", one, other)
    assert parting == {"turn": turn, "action": action, "words": words}
    assert page.run("return partingOf(arguments[0], arguments[0])", one) is None


def test_ended_film_stays_at_its_end(page) -> None:
    captions = page.run(
        """
        const film = player(arguments[0], () => {}, []);
        return [[0, 1], [0, 2], [1, 0], [1, 1]].map(([turn, action]) => {
          film.show(turn, action);
          return [".screen", ".caption"].map((part) => film.element.querySelector(part).textContent).join(" ");
        });
        """,
        [turns(("L", "ab")), turns(("L U", "abc"), ("R", "cd"))],
    )
    assert captions == [
        "b Turn 0 · L 0frame 2 of 5",
        "b Turn 0 · L 0 · it has endedframe 3 of 5",
        "b Turn 0 · L 0 · it has endedframe 4 of 5",
        "b Turn 0 · L 0 · it has endedframe 5 of 5",
    ]
