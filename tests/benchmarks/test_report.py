"""Report of a run of 200 iterations at the default task's size: time to write, size, and time to open."""

import os
import random
import statistics
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.agents.evaluation.episodes import fold_episodes
from starpo.ragen.agents.evaluation.summary import summarise
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.loop import play
from starpo.ragen.agents.rollout.shards import make_episodes
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.metrics.iteration import filter_metrics, reward_metrics, rollout_metrics
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.store import Facts, Store
from starpo.schemas.datasets import SAMPLES
from starpo.schemas.manifest import Stage
from tests.examples import put_folder

pytestmark = pytest.mark.benchmark

ITERATIONS, EVALUATE_EVERY = 200, 5
GROUPS, MEMBERS, PANEL = 48, 16, 256
DIFFERENT_ROLLOUTS = 3  # each is played once and stored many times
UPDATE_METRICS = 22
REPEATS = 5
MAX_BYTES, MAX_SECONDS = 20e6, 3.0

TOKENIZER = make_tokenizer()
SETTINGS = SokobanSettings(observation="compact", generator="distance")
AGENT = AgentConfig(prompt="state", context="window", should_show_reward=False, max_turns=5)
WAYS = ("up", "down", "left", "right")


class RandomPlayer:
    """Session of random responses in the embedded policy's format, which compress worse than real ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def generate(self, requests: list[Request]) -> list[Response]:
        return [self._answer() for _ in requests]

    def close(self) -> None:
        pass

    def _answer(self) -> Response:
        words = [self._random.choice(WAYS) for _ in range(4)]
        moves = " || ".join(self._random.choice(WAYS).capitalize() for _ in range(self._random.randint(1, 5)))
        text = f"<think>X {words[0]} {words[1]} O {words[2]} push {words[3]}</think><answer>{moves}</answer>"
        if self._random.random() < 0.02:
            text = text.replace("</think>", "")
        ids = [*TOKENIZER.encode(text, add_special_tokens=False), TOKENIZER.eos_token_id]
        return Response(ids, [-self._random.expovariate(4.0) for _ in ids], "stop")


def play_random(seed: int, num_groups: int, members: int) -> pa.Table:
    groups = [(f"g{group:04d}", derive_seed(seed, "environment", 0, group)) for group in range(num_groups)]
    episodes = [episode for shard in make_episodes(groups, members, num_groups) for episode in shard]
    contexts, sampling = ContextBuilder(TOKENIZER, AGENT, 64), SamplingConfig(max_response_tokens=64)
    return play(RandomPlayer(seed), contexts, TOKENIZER, SETTINGS, AGENT, sampling, 512, episodes)


def _varied(name: str, value: float, factor: float) -> float:
    """Vary a value within the dataset's rules: counts stay the same, and shares at most 1."""
    varied = value if "num_" in name else value * factor
    return min(varied, 1.0) if 0 <= value <= 1 else varied


def samples(rewards: pa.Table, selection: pa.Table, noise: random.Random) -> pa.Table:
    kept = {row["group_id"] for row in selection.to_pylist() if row["kept"]}
    trained = {row["trajectory_id"]: row for row in rewards.to_pylist() if row["group_id"] in kept}
    rows = [
        {
            **{name: row[name] for name in ("trajectory_id", "group_id", "trajectory_return")},
            "num_tokens": 80,
            "kl_reference": None,
            "old_behaviour_gap": 1e-6,
            "loss_share": 1 / len(trained),
            **{name: noise.random() for name in ("mean_ratio", "clip_fraction", "kl_behaviour", "entropy")},
            "advantage": noise.gauss(0, 1),
        }
        for row in trained.values()
    ]
    return pa.Table.from_pylist(rows, schema=SAMPLES.schema)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Store with the run 'long': 200 iterations that share a few rollouts, each with its own metrics."""
    folder = tmp_path_factory.mktemp("long")
    store, noise = Store(str(folder / "store")), random.Random(0)
    config = StarPOConfig(environment=SETTINGS, agent=AGENT, iterations=ITERATIONS, filter=FilterConfig(keep=0.5))
    store.runs.create("long", flow="starpo", preset="sokoban", config=config.model_dump(mode="json"))
    TOKENIZER.save_pretrained(folder / "tokenizer")
    work = {"settings": {}, "inputs": {}, "seed": 0, "provenance": {"seconds": 1.0}}
    warm: dict[str, Any] = {**work, "stage": Stage(name="warm_start", version=1)}
    put_folder(store, "checkpoint", str(folder / "tokenizer"), Facts(key="warm", **warm))
    store.runs.record_stage("long", 0, "warm_start", {"checkpoint": "warm"})

    def put(iteration: int, stage: str, settings: dict[str, Any] | None = None, /, **tables: pa.Table) -> None:
        key = f"{stage.replace(':', '-')}-{iteration}"
        made = {**work, "stage": Stage(name=stage, version=1), "settings": settings or {}}
        for kind, table in tables.items():
            store.put_table(kind, table, Facts(key=key, **made))
        store.runs.record_stage("long", iteration, stage, dict.fromkeys(tables, key))

    played = [play_random(seed, GROUPS, MEMBERS) for seed in range(DIFFERENT_ROLLOUTS)]
    paid = [compute_rewards(turns, RewardConfig()) for turns in played]
    chosen = [select_groups(turns, rewards, config.filter) for turns, rewards in zip(played, paid, strict=True)]
    measured = [
        {**rollout_metrics(t), **reward_metrics(r, t), **filter_metrics(s)}
        for t, r, s in zip(played, paid, chosen, strict=True)
    ]
    episodes = fold_episodes(play_random(99, PANEL, 1), "sokoban", 0.5)
    success = summarise(episodes)
    for iteration in range(ITERATIONS + 1):
        if iteration % EVALUATE_EVERY == 0:
            settings = {"environment": SETTINGS.model_dump(mode="json")}
            values = {name: _varied(name, abs(value), noise.uniform(0.9, 1.0)) for name, value in success.items()}
            table = metrics_table(iteration, "evaluate:sokoban", values)
            put(iteration, "evaluate:sokoban", settings, episodes=episodes, metrics=table)
        if iteration == ITERATIONS:
            break
        n = iteration % DIFFERENT_ROLLOUTS
        put(iteration, "rollout", turns=played[n])
        put(iteration, "reward", rewards=paid[n])
        values = {name: _varied(name, value, noise.uniform(0.9, 1.1)) for name, value in measured[n].items()}
        table = metrics_table(iteration, "variance_filter", values)
        put(iteration, "variance_filter", selection=chosen[n], metrics=table)
        values = {"update/gradient_norm": noise.uniform(0.1, 1.0)}
        values |= {f"update/number_{i}": noise.random() for i in range(UPDATE_METRICS)}
        table = metrics_table(iteration, "update", values)
        put(iteration, "update", samples=samples(paid[n], chosen[n], noise), metrics=table)
    return store


def test_the_report_of_200_iterations_is_small_and_opens_at_once(store: Store, chromium: Any, tmp_path: Path) -> None:
    started = time.perf_counter()
    data = gather(store, "long")
    gathered = time.perf_counter()
    page = tmp_path / "long.html"
    page.write_text(render_report(data), encoding="utf-8")
    rendered = time.perf_counter()
    size = page.stat().st_size
    shown, episodes = (sum(e.num_trajectories for e in embedded) for embedded in (data.rollouts, data.evaluations))
    print(f"\n{ITERATIONS} iterations of {GROUPS} x {MEMBERS}, load {os.getloadavg()[0]:.1f}")
    print(f"  made in {gathered - started:.1f} s of reading and {rendered - gathered:.1f} s of writing")
    print(f"  {size / 1e6:.2f} MB with {shown} trajectories of {len(data.rollouts)} iterations and {episodes} episodes")
    assert data.missing == []
    times = [_opened(chromium, page) for _ in range(REPEATS)]
    for name in times[0]:
        values = sorted(t[name] for t in times)
        print(f"  {name:34} median {statistics.median(values):.2f} s   {values[0]:.2f} to {values[-1]:.2f}")
    assert size < MAX_BYTES
    assert statistics.median(t["interactive, a trajectory open"] for t in times) < MAX_SECONDS


def _opened(chromium: Any, page: Path) -> dict[str, float]:
    """Open the page in a blank tab; return seconds from the start of the navigation, and those of the search's read."""
    chromium.get("about:blank")
    chromium.get(page.as_uri())
    wait = (
        "const done = arguments[0]; const t = setInterval(() => { if (CONDITION) { clearInterval(t); done(); } }, 5);"
    )
    chromium.execute_async_script(wait.replace("CONDITION", "performance.getEntriesByName('ready').length"))
    parsed, ready = chromium.execute_script(
        "return [performance.getEntriesByType('navigation')[0].domInteractive,"
        " performance.getEntriesByName('ready')[0].startTime]"
    )
    chromium.execute_script("window.began = performance.now(); document.getElementById('find').scrollIntoView();")
    chromium.execute_async_script(wait.replace("CONDITION", "document.getElementById('finder').dataset.searched"))
    read = chromium.execute_script("return performance.now() - window.began")
    return {
        "parsed and drawn": parsed / 1e3,
        "interactive, a trajectory open": ready / 1e3,
        "then: all read for the search": read / 1e3,
    }
