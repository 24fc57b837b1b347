"""The report in a real browser: all its parts work, and hostile text stays text."""

import json
from pathlib import Path

import pytest

from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.failures import Failures
from starpo.ragen.store import Store
from tests.ragen.evidence.report.stored import rows

pytestmark = pytest.mark.ci


def test_every_part_is_drawn(page) -> None:
    assert page.count("#panels .panel svg path.joined") >= 6
    assert page.count("#heatmap canvas") == 1
    assert page.count(".turn .board") >= 3
    assert page.count(".player .board") == 1
    assert page.count(".token") > 10


def test_keys_go_to_other_trajectories(page, stored_run: Store) -> None:
    def press(key: str) -> str:
        before = page.run("return location.hash")
        page.press("h1", key)
        page.wait_for(
            f"location.hash !== {json.dumps(before)} && document.documentElement.dataset.ready === location.hash"
        )
        return page.text(".trajectory-title")

    page.go("#iteration=1&group=i1-g0")
    [first, second], groups = page.texts(".members .member b"), page.count("[aria-label='Group'] option")
    assert (first, second, groups) == ("0", "1", 3)
    assert press("j").endswith("i1-g0-1")
    assert press("k").endswith("i1-g0-0")
    assert not press("J").endswith("i1-g0-0")
    assert press("]").startswith("Iteration 2, trajectory ")
    assert press("[").startswith("Iteration 1, trajectory ")
    press("n")
    assert page.count(".members [aria-current].success") == 0
    page.put("[aria-label='Search text']", "jk")
    page.press("[aria-label='Search text']", "j")
    assert page.run("return location.hash") == page.run("return document.documentElement.dataset.ready")


def test_folded_prompt_shows_model_input(page, stored_run: Store) -> None:
    row = rows(stored_run, 1, "rollout", "turns")[1]
    page.go(f"#iteration=1&trajectory={row['trajectory_id']}&turn={row['turn']}")
    prompt = f".turn[data-turn='{row['turn']}'] .prompt"
    assert page.text(f"{prompt} summary") == f"Prompt {len(row['prompt_ids'])} tokens, all that the model saw"
    assert page.count(f"{prompt} pre") == 0  # created on unfolding
    unfold(page, prompt)
    assert page.texts(f"{prompt} .pill") == ["user"]
    assert page.texts(f"{prompt} pre") == [f"<|im_start|>user\n{row['observation']}<|im_end|>\n<|im_start|>assistant\n"]


def test_prompt_includes_previous_context(page, hostile_texts) -> None:
    """Uses a full context made here, whose second turn sees the first, as the stored run has windows of one turn."""
    page.run(
        """
        const message = ([role, text, size]) => ({ role, text, cut: 0, size });
        const told = (start, size, ...added) => ({ start, size, added: added.map(message) });
        const turns = [
          { prompt: told(true, 9, ["system", "be good", 4], ["user", arguments[0], 5]), response: arguments[1] },
          { prompt: told(false, 17, ["user", "and now", 6]), response: "done" },
        ];
        const block = promptBlock(turns, 1);
        block.id = "told";
        document.querySelector(".turns").append(block);
        """,
        hostile_texts[0],
        hostile_texts[1],
    )
    assert page.text("#told summary") == "Prompt 17 tokens in the context, the last 6 new"
    unfold(page, "#told")
    assert page.texts("#told .pill") == ["system", "user", "assistant", "user"]
    assert page.texts("#told pre") == ["be good", hostile_texts[0], hostile_texts[1], "and now"]
    assert page.texts("#told .message .muted") == [
        "from turn 0 · 4 tokens", "from turn 0 · 5 tokens", "from turn 0", "new · 6 tokens"
    ]  # fmt: skip
    is_open = "return Array.from(document.querySelectorAll('#told .message'), (e) => e.open)"
    assert page.run(is_open) == [False, False, False, True]


def unfold(page, selector: str) -> None:
    page.run("document.querySelector(arguments[0]).open = true", selector)
    page.wait_for(f"document.querySelector({json.dumps(selector + ' pre')})")


def test_hostile_huge_text_shown_as_text(page, stored_run: Store, hostile_texts, huge_text: str) -> None:
    shown = set()
    page.put(".shade select", "none")
    for iteration in range(4):
        for name in sorted({row["trajectory_id"] for row in rows(stored_run, iteration, "rollout", "turns")}):
            page.go(f"#iteration={iteration}&trajectory={name}")
            shown |= set(page.texts(".turn pre"))
    for text in hostile_texts:
        assert any(text in s or text.replace("\x00", "\ufffd") in s for s in shown), text
    assert huge_text[:20_000] in shown
    assert max(map(len, shown)) <= 20_000
    assert page.count(".turn :is(img, script, a, base, iframe, style)") == 0


def test_reordering_characters_are_named(page, stored_run: Store) -> None:
    row = next(r for r in rows(stored_run, 0, "rollout", "turns") if "\u202e" in r["response"])
    page.go(f"#iteration=0&trajectory={row['trajectory_id']}&turn={row['turn']}")
    card = f".turn[data-turn='{row['turn']}']"
    codes = page.run(
        "return Array.from(document.querySelectorAll(arguments[0]), (e) => e.dataset.code)", f"{card} .tokens .unseen"
    )
    assert codes == ["U+202E", "U+2066", "U+200B", "U+FEFF", "U+E0141"]
    assert page.count(f"{card} .tokens .unseen > bdi") == 5
    assert (
        page.run("return getComputedStyle(document.querySelector(arguments[0])).unicodeBidi", f"{card} pre")
        == "isolate"
    )


def test_next_failure_goes_over_iterations(page, stored_run: Store) -> None:
    page.go("#iteration=2&source=training")
    passed = []
    for _ in range(2 * 6):  # trajectories of the last two iterations
        before = page.run("return location.hash")
        page.click(".keys [aria-label='next failure']")
        page.wait_for(
            f"document.querySelector('.about').textContent === 'No failure follows.' || (location.hash !== "
            f"{json.dumps(before)} && document.documentElement.dataset.ready === location.hash)"
        )
        if page.text(".about") == "No failure follows.":
            break
        passed.append(page.text(".trajectory-title"))
        assert page.text(".inline-facts .pill") == "failed"
    assert page.text(".about") == "No failure follows."
    assert {title.split(",")[0] for title in passed} == {"Iteration 2", "Iteration 3"}
    assert len(set(passed)) == len(passed)


def test_tokens_are_shaded_by_log_probs(page, stored_run: Store) -> None:
    row = next(r for r in rows(stored_run, 1, "rollout", "turns") if "\U0001f600" in r["response"])
    page.go(f"#iteration=1&trajectory={row['trajectory_id']}")
    card = f".turn[data-turn='{row['turn']}']"
    assert page.text(f"{card} .tokens") == row["response"]
    tokens = page.run(
        "return Array.from(document.querySelectorAll(arguments[0]),"
        " (e) => [e.style.getPropertyValue('--share'), getComputedStyle(e).backgroundColor])",
        f"{card} .token",
    )
    assert len(tokens) == len(row["response_ids"])
    # log-probs cycle through 0, -0.5, ... -3.5; 3 nats are the full shade
    assert [float(depth) for depth, _ in tokens[:8]] == pytest.approx([min(1, n / 2 / 3) for n in range(8)], abs=1e-3)
    assert len({colour for _, colour in tokens[:8]}) == 7
    page.press(f"{card} .tokens", "ArrowRight")
    page.press(f"{card} .tokens", "ArrowRight")
    readout = page.text(f"{card} .token-readout")
    assert readout.startswith(f"token 2 of {len(tokens)} ")
    assert f"id {row['response_ids'][1]} · log-prob −0.500 · p 0.607" in readout
    page.run(
        "document.querySelectorAll(arguments[0])[3].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))",
        f"{card} .token",
    )
    assert page.text(f"{card} .token-readout").startswith("token 4 of")


def test_the_film_steps_plays_and_pauses(page, stored_run: Store) -> None:
    name = next(r["trajectory_id"] for r in rows(stored_run, 3, "rollout", "turns") if len(r["executed_actions"]) > 1)
    page.go(f"#iteration=3&trajectory={name}")
    frames = page.count(".turn .frame")

    def at() -> int:
        return int(page.run("return document.querySelector('.player input').value"))

    assert at() == 0
    page.click(".player .forward")
    page.click(".player .forward")
    assert at() == 2
    assert page.count(".frame.current") == page.count(".turn.current") == 1
    assert f"frame 3 of {frames}" in page.text(".player .caption")
    page.click(".player .back")
    assert at() == 1
    for key, place in (("ArrowRight", 2), ("ArrowLeft", 1), ("End", frames - 1), ("Home", 0), ("ArrowLeft", 0)):
        page.press(".player", key)
        assert at() == place
    page.put(".player input", "1")
    assert at() == 1
    assert page.run("return document.querySelector('.screen svg').innerHTML") == page.run(
        "return document.querySelector('.frame.current svg').innerHTML"
    )
    page.put(".player select", "fast")
    page.press(".player", " ")
    assert page.text(".player .play") == "Pause"
    page.wait_for(f"Number(document.querySelector('.player input').value) === {frames - 1}")
    page.wait_for("document.querySelector('.player .play').textContent === 'Play'")
    page.click(".player .play")
    page.wait_for("Number(document.querySelector('.player input').value) === 1")  # restarts from the first frame
    page.click(".player .play")
    assert page.text(".player .play") == "Play"


def test_iteration_shows_stages_metrics_groups(page, stored_run: Store) -> None:
    page.go("#iteration=1")
    assert page.text(".iteration-title") == "Iteration 1"
    stages = stored_run.runs.iteration("hostile", 1)
    keys = {key for by_kind in stages.values() for key in by_kind.values()}
    assert set(page.texts("[data-part=Stages] .key")) == keys
    stage_rows = page.texts("[data-part=Stages] tbody tr")
    assert len(stage_rows) == sum(len(by_kind) for by_kind in stages.values())
    assert any("checkpoint" in row and "iteration 0" in row for row in stage_rows)  # origin of the rollout's policy
    assert "python 3" in page.text("[data-part=Stages] .origin")
    metrics = {row["name"] for row in rows(stored_run, 1, "variance_filter", "metrics")}
    assert metrics < set(page.texts("[data-part=Metrics] dt"))
    groups = page.texts("[data-part=Groups] tbody tr")
    for row, shown in zip(
        sorted(rows(stored_run, 1, "variance_filter", "selection"), key=lambda r: r["rank"]), groups, strict=True
    ):
        assert row["group_id"] in shown
        assert ("kept" if row["kept"] else "dropped") in shown
        assert row["reason"].split(": ", 1)[1] in shown
    page.follow("[data-part=Groups] tbody tr:nth-child(2) a")
    assert page.run("return location.hash").startswith("#iteration=1&group=i1-g")
    page.follow("#iteration-view .controls a:last-of-type")
    assert page.text(".iteration-title") == "Iteration 2"
    page.put("#iteration-view select", "4")
    page.wait_for("document.querySelector('.iteration-title').textContent === 'Iteration 4'")
    assert "The filter decided nothing in this iteration" in page.text("[data-part=Groups]")


def test_address_opens_its_target(browser, path: Path, stored_run: Store) -> None:
    row = rows(stored_run, 2, "rollout", "turns")[-1]
    browser.open(path, f"#iteration=2&trajectory={row['trajectory_id']}&turn={row['turn']}")
    assert browser.text(".trajectory-title") == f"Iteration 2, trajectory {row['trajectory_id']}"
    assert browser.text(".iteration-title") == "Iteration 2"
    assert browser.run("return document.querySelector('.turn.current').dataset.turn") == str(row["turn"])
    assert browser.text(".members [aria-current]").startswith(str(row["member"]))
    browser.driver.back()  # only the empty page comes before
    browser.open(path, "#iteration=2&trajectory=no-such")
    assert "There is no trajectory no-such in this page" in browser.text(".about")
    browser.open(path, "#iteration=77")
    assert "This run has no iteration 77: it has 0 to 4." in browser.text(".iteration")
    browser.open(path, "#iteration=<img src=x onerror=alert(1)>&trajectory=<script>")
    assert browser.text(".trajectory-title").startswith("Iteration 3")
    assert browser.complaints() == []


def test_evaluated_episodes_are_followed_over_checkpoints(page, stored_run: Store) -> None:
    page.go("#iteration=2")
    page.follow(".iteration a[href*='source=sokoban']")
    assert page.text(".trajectory-title") == "Evaluation sokoban after 2 updates, episode p0000-0"
    assert page.count("#viewer .members a") == 3
    stored = rows(stored_run, 2, "evaluate:sokoban", "episodes")[0]
    assert page.texts(".turn .tokens") == stored["responses"]
    page.wait_for("document.querySelectorAll('.checkpoints a').length === 3")
    page.follow(".checkpoints a:last-child")
    assert page.text(".trajectory-title") == "Evaluation sokoban after 4 updates, episode p0000-0"
    page.go("#iteration=2&source=training")
    page.put("#viewer .controls label:nth-of-type(2) select", "sokoban")
    page.wait_for("document.querySelector('.trajectory-title').textContent.startsWith('Evaluation sokoban after 2')")


def test_first_paragraph_names_failures(page, data_of_failures) -> None:
    assert page.text("#failures .headline").startswith(f"What goes wrong now: {data_of_failures.num_failed} of ")
    assert [int(text) for text in page.texts("#failures li b")] == [kind.count for kind in data_of_failures.kinds]
    page.follow("#failures li a")
    assert data_of_failures.kinds[0].example in page.text(".trajectory-title")


@pytest.fixture
def data_of_failures(stored_run: Store) -> Failures:
    failures = gather(stored_run, "hostile").failures
    assert failures is not None
    assert failures.num_failed > 0
    return failures
