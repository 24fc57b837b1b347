"""Search by facets and SQL, files of hits, where artifacts come from, and commands to copy, in a real browser."""

import json
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from tests.ragen.evidence.view.conftest import Browser
from tests.ragen.evidence.view.test_live_in_browser import open_page, requests

pytestmark = pytest.mark.ci
WORDS = ["plain", "", "it's", "a b", "$(id)", "`id`", "!!", "-x;y", "\u00e9\U0001f600"]
UNSEEN_WORDS = ["a\nb", "\x15id\n", "'\u202e\\'", "\x7f\x9b"]
SAID = "document.querySelector('#search .search-status').textContent"


@pytest.fixture
def page(browser: Browser, served: str) -> Browser:
    open_page(browser, f"{served}/run/hostile#iteration=1&group=i1-g1")
    browser.wait_for("document.documentElement.dataset.ready")
    return browser


def search(page: Browser, **fields: object) -> str:
    """Search, and return what the page says of it."""
    page.run("document.querySelector('#search form').reset()")
    for name, value in fields.items():
        page.put(f"#search [name={name}]", str(value))
    page.run("document.querySelector('#search form').requestSubmit()")
    page.wait_for(f"{SAID} !== '' && {SAID} !== 'Searching…'")
    return page.text("#search .search-status")


def press(page: Browser, label: str) -> None:
    """Click the button of the search with this text in its label."""
    buttons = "[...document.querySelectorAll('#search button')]"
    page.run(f"{buttons}.find((e) => e.textContent.includes(arguments[0])).click()", label)


def commands(page: Browser, place: str) -> list[list[str]]:
    """Return the words that a shell makes of the commands in a part of the page."""
    return [words_in_shell(line) for line in page.texts(f"{place} .command pre")]


def words_in_shell(line: str) -> list[str]:
    script = f"printf '%s\\0' {line}"
    printed = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}).stdout
    return printed.decode().split("\0")[:-1]


def test_search_by_facets_and_sql(page: Browser) -> None:
    assert search(page, least_turns=4).startswith("0 of 24 trajectories")
    assert search(page, status="format_error", kept="true").split(" of ")[0] != "0"
    assert search(page, component="format", component_high=-0.01) != search(page, component="format")
    assert page.texts("#components option") == []
    page.run("document.querySelector('[name=component]').focus()")
    page.wait_for("document.querySelectorAll('#components option').length > 1")
    assert search(page, where="num_turns = 3 and trajectory_return > -9").endswith("of 24 trajectories.")
    assert page.count("#search .hit") > 0
    assert "no_such" in search(page, where="no_such > 3")
    assert page.count("#search .hit") == 0
    assert page.run("return [...document.querySelectorAll('#search button[disabled]')].length") == 3
    assert "refused" in search(page, where="exists (from read_text('/etc/passwd'))")


def test_random_hit_is_any_hit(page: Browser) -> None:
    search(page, text="up", success="false")
    hits = {
        link.partition("#")[2]
        for link in page.run("return [...document.querySelectorAll('#search .hit')].map((e) => e.href)")
    }
    assert len(hits) > 1
    page.run("Math.random = () => 0.999999")
    press(page, "random")
    page.wait_for("document.documentElement.dataset.ready === location.hash && location.hash.includes('iteration=0')")
    assert page.run("return location.hash.slice(1)") in hits


def test_hits_are_taken_away(page: Browser, tmp_path: Path) -> None:
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    answer = search(page, kept="true", text="up")
    number = int(answer.split(" of ")[0])
    for label, name in (("CSV", "hostile-hits.csv"), ("JSON", "hostile-hits.jsonl")):
        press(page, label)
        deadline = time.monotonic() + 30
        while not (tmp_path / name).exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    rows = [json.loads(line) for line in (tmp_path / "hostile-hits.jsonl").read_text().splitlines()]
    assert len(rows) == number > 1
    assert list(rows[0]) == ["run", "iteration", "trajectory", "turn", "success", "return"]
    lines = (tmp_path / "hostile-hits.csv").read_text().splitlines()
    assert lines[0] == "run,iteration,trajectory,turn,success,return"
    assert [line.split(",")[2] for line in lines[1:]] == [row["trajectory"] for row in rows]


def test_search_shows_its_command(page: Browser, store: Store) -> None:
    search(page, text="it's \u202e", where="status <> 'o''k'\nand num_turns > 0", last=2)
    [[program, command, run, sql, option, url]] = commands(page, "#search .terminal")
    assert (program, command, run, option, url) == ("starpo", "sql", "hostile", "--store", store.url)
    assert "contains(lower(response), lower('it''s \u202e'))" in sql
    assert "iteration <= 2" in sql
    assert "\u202e" not in page.text("#search .terminal")  # nor would it reorder the line


def test_each_view_shows_its_command(page: Browser, store: Store) -> None:
    of_store = ["--store", store.url]
    assert commands(page, "#run-terminal")[0] == ["starpo", "show", "hostile", *of_store]
    page.go("#iteration=2")
    [show, *lineages] = commands(page, "#iteration-view .terminal")
    assert show == ["starpo", "show", "hostile", "--iteration", "2", *of_store]
    assert ["starpo", "lineage", "hostile:2:rollout", *of_store] in lineages
    page.go("#iteration=1&trajectory=i1-g1-1")
    shown = ["starpo", "show", "hostile", "--iteration", "1", "--trajectory", "i1-g1-1", "--prompts", *of_store]
    assert shown in commands(page, "#viewer .terminal")
    page.go("#iteration=2&source=sokoban&trajectory=p0001-0")
    keys = store.runs.iteration("hostile", 2)["evaluate:sokoban"]
    episode = store.read_table("episodes", keys["episodes"]).to_pylist()[1]
    sql, lineage = commands(page, "#viewer .terminal")
    assert lineage == ["starpo", "lineage", f"episodes/{keys['episodes']}", *of_store]
    rows = rows_of(store, sql[3])
    assert {(row["artifact"], row["iteration"]) for row in rows} == {(keys["episode_turns"], 2)}
    assert [row["response"] for row in rows] == episode["responses"]


def test_episode_without_turns_shows_itself(browser: Browser, served: str, store: Store) -> None:
    keys = store.runs.iteration("hostile", 2)["evaluate:sokoban"]
    shutil.rmtree(Path(store.url, "episode_turns", keys["episode_turns"]))
    open_page(browser, f"{served}/run/hostile#iteration=2&source=sokoban&trajectory=p0001-0")
    browser.wait_for("document.querySelector('#viewer .terminal')")
    sql, _ = commands(browser, "#viewer .terminal")
    [row] = rows_of(store, sql[3])
    assert (row["artifact"], row["iteration"]) == (keys["episodes"], 2)
    assert row["env_seed"] == store.read_table("episodes", keys["episodes"])["env_seed"].to_pylist()[1]


def rows_of(store: Store, sql: str) -> list[dict[str, object]]:
    with open_database(store, ["hostile"]) as database:
        return database.query(sql).to_pylist()


@pytest.mark.parametrize("word", [*WORDS, *UNSEEN_WORDS])
def test_word_reaches_the_shell_unchanged(page: Browser, word: str) -> None:
    line = page.run("return commandLine(['starpo', arguments[0]])", word)
    assert words_in_shell(line) == ["starpo", word]
    assert line.isprintable()
    if word in WORDS:
        assert shlex.split(line) == ["starpo", word]


def test_copied_command_is_on_clipboard(page: Browser, served: str, store: Store) -> None:
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"origin": served, "permissions": permissions})
    button = "document.querySelector('#run-terminal .command button')"
    page.run("document.querySelector('#run-terminal details').open = true")
    page.run(f"{button}.click()")
    page.wait_for(f"['Copied', 'Selected'].includes({button}.textContent)")
    if page.text("#run-terminal .command button") == "Selected":
        assert page.run("return getSelection().toString()") == page.text("#run-terminal .command pre")
    else:
        read = "navigator.clipboard.readText().then(arguments[0])"
        assert page.driver.execute_async_script(read) == page.text("#run-terminal .command pre")
    page.driver.execute_cdp_cmd("Browser.resetPermissions", {})


def test_trajectory_says_where_it_is_from(page: Browser, store: Store) -> None:
    origin, stages = page.text("#viewer .where-from"), store.runs.iteration("hostile", 1)
    assert stages["rollout"]["turns"] in origin
    assert "checkpoint" in origin
    assert "reward of iteration 1" in origin
    assert "update of iteration 1" in origin
    assert "Made with code" in origin
    page.follow("#viewer .where-from a")
    assert page.text(".iteration-title") == "Iteration 0"  # which made the checkpoint


def test_uses_in_other_runs_are_found(page: Browser, store: Store) -> None:
    turns = store.runs.iteration("hostile", 1)["rollout"]["turns"]
    store.runs.create("replay", flow="replay", preset="mine", config=store.runs.get("hostile").config)
    store.runs.record_stage("replay", 5, "rollout", {"turns": turns})
    key = stage_key(Stage(name="reward", version=1), {"other": True}, {"turns": turns}, 0)
    revision = {"code": f"{'0123456789' * 4}-modified-89abcdef"}
    facts = Facts(
        key=key, stage=Stage(name="reward", version=1), settings={}, inputs={"turns": turns}, seed=0,
        provenance=revision, headline=None, code={"scene": "<img src=x>"},
    )  # fmt: skip
    rewards = store.read_table("rewards", store.runs.iteration("hostile", 1)["reward"]["rewards"])
    store.put_table("rewards", rewards, facts)
    store.runs.record_stage("replay", 5, "reward", {"rewards": key})
    page.run("document.querySelector('#viewer .where-from button').click()")
    page.wait_for("document.querySelector('#viewer .where-from').textContent.includes('reward of replay, iteration 5')")
    assert "rollout of replay, iteration 5" in page.text("#viewer .where-from")
    assert "/run/replay#iteration=5" in page.run(
        "return [...document.querySelectorAll('#viewer .where-from a')].map((e) => e.href).join()"
    )
    assert requests(page) == []
    page.run("document.querySelector('#viewer .where-from [href*=replay]').click()")
    page.wait_for("location.pathname === '/run/replay' && document.documentElement.dataset.ready")
    origin = page.text("[data-part=Stages] .origin")
    assert origin.startswith("Made with code 012345678901-modified-89abcdef, scene <img src=x> · python 3")
