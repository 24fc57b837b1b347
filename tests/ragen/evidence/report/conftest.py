"""A small stored run, played by the real rollout loop with scripted responses, some hostile; and a real browser."""

import json
import shutil
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.agents.evaluation.episodes import episode_turns, fold_episodes
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.loop import Episode, play
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.seeding import derive_seed, dynamics_seed, sampling_seed
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.metrics.iteration import filter_metrics, reward_metrics, rollout_metrics
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.datasets import SAMPLES, TRAINED
from starpo.schemas.manifest import Stage
from tests.examples import put_folder

HUGE = "0123456789" * 2500
HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<!--<script>",
    "{{ 7 * 7 }} {% raw %} ${7*7}",
    "\u2028\u2029\x00\x07 'quotes' \"double\" & &lt; ]]>",
    "<svg/onload=document.title='owned'>",
    "\u202eowned\u2066 \u200b\u00e9\U0001f600 \ufeff\U000e0141",
    "</pre></style><base href='http://127.0.0.1:9/'><a href=javascript:alert(1)>x</a>",
)
"""Attacks on the page that a response might contain."""

TOKENIZER = make_tokenizer()
SETTINGS = SokobanSettings(observation="compact", generator="distance", min_solution=2, max_solution=6)
AGENT = AgentConfig(prompt="state", context="window", should_show_reward=False, max_turns=3)
ITERATIONS = 4
EVALUATED = (0, 2, 4)


class ScriptedSession:
    """Session that answers with well-formed moves after hostile reasoning, sometimes with only hostile or huge text."""

    def __init__(self) -> None:
        self._turns = count()

    def generate(self, requests: list[Request]) -> list[Response]:
        return [self._answer() for _ in requests]

    def close(self) -> None:
        pass

    def _answer(self) -> Response:
        turn = next(self._turns)
        text = HOSTILE[turn % len(HOSTILE)]
        if turn == 4:
            text = HUGE
        elif turn % 5:
            moves = " || ".join(("Up", "Down", "Left", "Right")[(turn + n * n) % 4] for n in range(1 + turn % 4))
            text = f"<think>{text}</think><answer>{moves}</answer>"
        ids = [*TOKENIZER.encode(text, add_special_tokens=False, split_special_tokens=True), TOKENIZER.eos_token_id]
        return Response(ids, [-(n % 8) / 2 for n in range(len(ids))], "stop")


@cache
def play_turns(groups: tuple[tuple[str, int], ...], members: int) -> pa.Table:
    episodes = [
        Episode(group, member, seed, dynamics_seed(seed, member), sampling_seed(seed, member))
        for group, seed in groups
        for member in range(members)
    ]
    sampling = SamplingConfig(max_response_tokens=400)
    contexts = ContextBuilder(TOKENIZER, AGENT, 400)
    return play(ScriptedSession(), contexts, TOKENIZER, SETTINGS, AGENT, sampling, 4096, episodes)


def samples(turns: pa.Table, rewards: pa.Table, selection: pa.Table) -> pa.Table:
    """Dataset `samples` of a possible update on the kept groups, with advantages of both signs."""
    kept = {row["group_id"] for row in selection.to_pylist() if row["kept"]}
    returns = {row["trajectory_id"]: row for row in rewards.to_pylist() if row["group_id"] in kept and row["is_valid"]}
    tokens: dict[str, int] = {}
    for row in turns.to_pylist():
        tokens[row["trajectory_id"]] = tokens.get(row["trajectory_id"], 0) + len(row["response_ids"])
    common = {"mean_ratio": 1.0, "clip_fraction": 0.0, "kl_behaviour": 0.01, "kl_reference": None, "entropy": 0.5}
    rows = [
        {
            "trajectory_id": name,
            "group_id": row["group_id"],
            "num_tokens": tokens[name],
            "trajectory_return": row["trajectory_return"],
            "advantage": 0.75 if number % 2 else -0.5,
            "old_behaviour_gap": 0.0,
            "loss_share": 1 / len(returns),
            **common,
        }
        for number, (name, row) in enumerate(returns.items())
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES.schema)


def trained_tokens(turns: pa.Table, trained: pa.Table) -> pa.Table:
    """Dataset `trained_tokens` of the same update; the numbers of a token follow from its place in the response."""
    advantages = dict(zip(trained["trajectory_id"].to_pylist(), trained["advantage"].to_pylist(), strict=True))
    rows = [
        {
            **{name: row[name] for name in ("trajectory_id", "group_id", "turn")},
            "has_loss": [n % 3 != 2 for n in range(count)],
            "advantages": [advantages[row["trajectory_id"]] * (-1) ** n for n in range(count)],
            "ratios": [0.8 + 0.1 * (n % 5) for n in range(count)],
            "clip_fractions": [n % 4 / 4 for n in range(count)],
            "entropies": [n % 5 / 2 for n in range(count)],
        }
        for row in turns.to_pylist()
        if row["trajectory_id"] in advantages and (count := len(row["response_ids"]))
    ]
    return pa.Table.from_pylist(rows, schema=TRAINED.schema)


def store_run(store: Store, name: str, folder: Path) -> None:
    """Store a run of four iterations."""
    config = StarPOConfig(environment=SETTINGS, agent=AGENT, iterations=ITERATIONS, filter=FilterConfig(keep=0.5))
    store.runs.create(name, flow="starpo", preset=HOSTILE[0], config=config.model_dump(mode="json"))

    def work(
        iteration: int, stage_name: str, inputs: dict[str, str], seconds: float, headline: Any = None, **more: Any
    ) -> Facts:
        stage, settings = Stage(name=stage_name, version=1), {"iteration": iteration, **more}
        key = stage_key(stage, settings, inputs, 0)
        provenance = {"seconds": seconds}
        return Facts(
            key=key, stage=stage, settings=settings, inputs=inputs, seed=0, provenance=provenance, headline=headline
        )

    def put(kind: str, table: pa.Table, iteration: int, stage_name: str, *rest: Any, **more: Any) -> str:
        made = work(iteration, stage_name, *rest, **more)
        store.put_table(kind, table, made)
        known = store.runs.iteration(name, iteration).get(stage_name, {})
        store.runs.record_stage(name, iteration, stage_name, {**known, kind: made.key})
        return made.key

    TOKENIZER.save_pretrained(folder)
    made = work(0, "warm_start", {}, 9.0)
    put_folder(store, "checkpoint", str(folder), made)
    checkpoint = made.key
    store.runs.record_stage(name, 0, "warm_start", {"checkpoint": checkpoint})
    for iteration in range(ITERATIONS):
        groups = tuple((f"i{iteration}-g{n}", derive_seed(0, "environment", iteration, n)) for n in range(3))
        turns = play_turns(groups, 2)
        rewards = compute_rewards(turns, RewardConfig())
        selection = select_groups(turns, rewards, config.filter)
        turns_key = put("turns", turns, iteration, "rollout", {"checkpoint": checkpoint}, 2.0)
        inputs = {"turns": turns_key}
        inputs["rewards"] = put("rewards", rewards, iteration, "reward", dict(inputs), 0.25)
        values = {**rollout_metrics(turns), **reward_metrics(rewards, turns), **filter_metrics(selection)}
        metrics = metrics_table(iteration, "variance_filter", values)
        put("metrics", metrics, iteration, "variance_filter", dict(inputs), 0.5)
        inputs["selection"] = put("selection", selection, iteration, "variance_filter", dict(inputs), 0.25)
        trained = samples(turns, rewards, selection)
        put("samples", trained, iteration, "update", dict(inputs), 3.0)
        if iteration:  # the first update stored means alone
            put("trained_tokens", trained_tokens(turns, trained), iteration, "update", dict(inputs), 3.0)
        store_success(store, name, iteration, put)
    store_success(store, name, ITERATIONS, put)
    store.runs.set_state(name, "failed", HOSTILE[1], {})


def store_success(store: Store, name: str, iteration: int, put: Any) -> None:
    """Store the evaluation of a checkpoint: metrics always, episodes only at iterations in `EVALUATED`."""
    success = 0.2 + 0.1 * iteration
    evaluated = {"": success, "_low": success - 0.05, "_high": success + 0.05}
    values = {f"evaluation/sokoban/success{end}": value for end, value in evaluated.items()}
    table = metrics_table(iteration, "evaluate:sokoban", values)
    put("metrics", table, iteration, "evaluate:sokoban", {}, 1.0)
    if iteration in EVALUATED:
        panel = tuple((f"p{prompt:04d}", derive_seed(99, "environment", 0, prompt)) for prompt in range(3))
        turns = play_turns(panel, 1)
        played = {"environment": SETTINGS.model_dump(mode="json"), "cell": "sokoban", "panel": "0" * 32}
        stored = {
            "episode_turns": episode_turns(turns, has_tokens=True),
            "episodes": fold_episodes(turns, "sokoban", 0.5),
        }
        for kind, table in stored.items():
            put(kind, table, iteration, "evaluate:sokoban", {}, 1.0, values, **played)


@pytest.fixture(scope="session")
def stored_run(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Store with the run 'hostile' of four iterations, three groups of two each."""
    folder = tmp_path_factory.mktemp("report")
    store = Store(str(folder / "store"))
    store_run(store, "hostile", folder / "tokenizer")
    return store


@pytest.fixture
def damaged_run(stored_run: Store, tmp_path: Path) -> Store:
    """Copy of `stored_run` that a test may damage."""
    shutil.copytree(stored_run.url, tmp_path / "store")
    return Store(str(tmp_path / "store"))


@pytest.fixture(scope="session")
def hostile_texts() -> tuple[str, ...]:
    """Hostile texts that responses of the stored run contain."""
    return HOSTILE


@pytest.fixture(scope="session")
def huge_text() -> str:
    """Text of one response in every rollout."""
    return HUGE


class Browser:
    """Headless Chromium, driven by JavaScript, so that nothing waits for animations."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, address: str = "") -> None:
        self.driver.get("about:blank")  # otherwise another address of the same page would not reload it
        self.driver.get_log("browser")  # what an earlier page has logged
        self.driver.get(path.as_uri() + address)
        self.wait_for("document.documentElement.dataset.ready")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript condition holds."""
        script = """
            const done = arguments[arguments.length - 1];
            const timer = setInterval(() => { if (CONDITION) { clearInterval(timer); done(true); } }, 10);
        """
        assert self.driver.execute_async_script(script.replace("CONDITION", condition))

    def count(self, selector: str) -> int:
        return self.run("return document.querySelectorAll(arguments[0]).length", selector)

    def texts(self, selector: str) -> list[str]:
        return self.run("return Array.from(document.querySelectorAll(arguments[0]), (e) => e.textContent)", selector)

    def text(self, selector: str) -> str:
        return self.texts(selector)[0]

    def click(self, selector: str) -> None:
        self.run(
            "document.querySelector(arguments[0]).dispatchEvent(new MouseEvent('click', {bubbles: true}))", selector
        )

    def follow(self, selector: str) -> None:
        """Click a link that changes the address, and wait until its target is open."""
        before = self.run("return location.hash")
        self.click(selector)
        self.wait_for(
            f"location.hash !== {json.dumps(before)} && document.documentElement.dataset.ready === location.hash"
        )

    def go(self, address: str) -> None:
        self.run("location.hash = arguments[0]", address)
        self.wait_for(f"document.documentElement.dataset.ready === {json.dumps(address)}")

    def put(self, selector: str, value: str) -> None:
        """Type into an input, or choose an option of a select."""
        self.run(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "for (const name of ['input', 'change']) e.dispatchEvent(new Event(name, {bubbles: true}))",
            selector,
            value,
        )

    def press(self, selector: str, key: str) -> None:
        """Focus an element, and press a key on it."""
        self.run(
            "const e = document.querySelector(arguments[0]); e.focus();"
            "e.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[1], bubbles: true, cancelable: true}))",
            selector,
            key,
        )

    def complaints(self) -> list[str]:
        """Return the warnings and errors logged, and every request that was made."""
        logged = [
            entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
        ]
        return logged + self.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")


@pytest.fixture(scope="session")
def browser(chromium: Any) -> Browser:
    return Browser(chromium)


@pytest.fixture(scope="module")
def path(stored_run: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render_report(gather(stored_run, "hostile")), encoding="utf-8")
    return file


@pytest.fixture
def page(browser: Browser, path: Path) -> Iterator[Browser]:
    """The opened report; after the test, checks that nothing was logged or requested and that no foreign script ran."""
    browser.open(path)
    yield browser
    assert browser.complaints() == []
    assert browser.driver.title == "hostile · StarPO run"
