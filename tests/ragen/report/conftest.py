"""A small stored run, played by the real loop from scripted responses, some of them hostile."""

from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from ragen.agent.context import ContextBuilder
from ragen.config.agent import AgentConfig
from ragen.config.filter import FilterConfig
from ragen.config.reward import RewardConfig
from ragen.config.rollout import SamplingConfig
from ragen.config.starpo import StarPOConfig
from ragen.diagnostics.metrics import filter_metrics, metrics_table, reward_metrics, rollout_metrics
from ragen.envs.sokoban import SokobanSettings
from ragen.filter.select import select_groups
from ragen.policy.tokenizer import make_tokenizer
from ragen.reward.compute import compute_rewards
from ragen.rollout.engine import Request, Response
from ragen.rollout.loop import Episode, play
from ragen.seeding import dynamics_seed, env_seed, sampling_seed
from ragen.store import Store
from ragen.store.keys import stage_key
from schemas.manifest import Stage

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<!--<script>",
    "{{ 7 * 7 }} {% raw %} ${7*7}",
    "\u2028\u2029\x00\x07 'quotes' \"double\" & &lt; ]]>",
    "<svg/onload=document.title='owned'>",
)
"""What a response might try to do to the page."""

TOKENIZER = make_tokenizer()
SETTINGS = SokobanSettings(observation="compact", generator="distance", min_solution=2, max_solution=6)
AGENT = AgentConfig(prompt="state", context="window", should_show_reward=False, max_turns=3)


class ScriptedSession:
    """Answers with well-formed moves around hostile thoughts, and now and then with a hostile text alone."""

    def __init__(self) -> None:
        self._turns = count()

    def generate(self, requests: list[Request]) -> list[Response]:
        return [self._answer() for _ in requests]

    def close(self) -> None:
        pass

    def _answer(self) -> Response:
        turn = next(self._turns)
        text = HOSTILE[turn % len(HOSTILE)]
        if turn % 5:
            moves = " || ".join(("Up", "Down", "Left", "Right")[(turn + n * n) % 4] for n in range(1 + turn % 4))
            text = f"<think>{text}</think><answer>{moves}</answer>"
        ids = [*TOKENIZER.encode(text, add_special_tokens=False, split_special_tokens=True), TOKENIZER.eos_token_id]
        return Response(ids, [-0.5] * len(ids), "stop")


def play_turns(iteration: int) -> pa.Table:
    episodes = [
        Episode(f"i{iteration}-g{group}", member, seed, dynamics_seed(seed, member), sampling_seed(seed, member))
        for group in range(3)
        for seed in [env_seed(0, iteration, group)]
        for member in range(2)
    ]
    sampling = SamplingConfig(max_response_tokens=400)
    contexts = ContextBuilder(TOKENIZER, AGENT, 400)
    return play(ScriptedSession(), contexts, TOKENIZER, SETTINGS, AGENT, sampling, 4096, episodes)


def store_run(folder: Path, name: str = "hostile", iterations: int = 4) -> Store:
    store = Store(str(folder))
    config = StarPOConfig(environment=SETTINGS, agent=AGENT, iterations=iterations, filter=FilterConfig(keep=0.5))
    settings = config.model_dump(mode="json")
    store.runs.create(name, flow="starpo", preset=HOSTILE[0], config=settings)

    def put(iteration: int, stage_name: str, kind: str, table: pa.Table, seconds: float) -> None:
        stage = Stage(name=stage_name, version=1)
        key = stage_key(stage, {"iteration": iteration}, {}, 0)
        store.put_table(
            kind,
            table,
            key=key,
            stage=stage,
            settings={"iteration": iteration},
            inputs={},
            seed=0,
            provenance={"seconds": seconds},
        )
        store.runs.record_stage(name, iteration, stage_name, {kind: key})

    for iteration in range(iterations):
        turns = play_turns(iteration)
        rewards = compute_rewards(turns, RewardConfig())
        selection = select_groups(turns, rewards, config.filter)
        put(iteration, "rollout", "turns", turns, 2.0)
        put(iteration, "reward", "rewards", rewards, 0.25)
        put(iteration, "variance_filter", "selection", selection, 0.25)
        values = {**rollout_metrics(turns), **reward_metrics(rewards, turns), **filter_metrics(selection)}
        put(iteration, "diagnose", "metrics", metrics_table(iteration, "diagnose", values), 0.5)
        success = 0.2 + 0.1 * iteration
        evaluated = {"": success, "_low": success - 0.05, "_high": success + 0.05}
        table = metrics_table(
            iteration, "evaluate", {f"evaluation/sokoban/success{k}": v for k, v in evaluated.items()}
        )
        put(iteration, "evaluate:sokoban", "metrics", table, 1.0)
    store.runs.set_state(name, "failed", HOSTILE[1], {})
    return store


@pytest.fixture(scope="session")
def stored_run(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with the run 'hostile' of four iterations, three groups of two each."""
    return store_run(tmp_path_factory.mktemp("report") / "store")


@pytest.fixture(scope="session")
def hostile_texts() -> tuple[str, ...]:
    """What responses of the stored run contain."""
    return HOSTILE
