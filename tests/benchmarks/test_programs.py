"""Programs at once: what the endpoint adds to a call, and memory over many episodes."""

import json
import statistics
import sys
import time
from pathlib import Path

import psutil
import pytest

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.methods.programs import endpoint, player
from starpo.ragen.methods.programs.settings import ProgramSettings
from tests.ragen.agents.rollout.conftest import ScriptedEngine

pytestmark = pytest.mark.benchmark

AGENT = AgentConfig(prompt="state")
SAMPLING = SamplingConfig(max_response_tokens=24)
PROGRAM = """
import http.client, json, os, sys
host, port = os.environ["OPENAI_BASE_URL"].removeprefix("http://").removesuffix("/v1").split(":")
connection = http.client.HTTPConnection(host, int(port))
messages = [{"role": "user", "content": "State: " + "SFFFHG " * 10}]
for turn in range(int(sys.argv[1])):
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "policy", "messages": messages}), headers)
    answer = json.load(connection.getresponse())["choices"][0]["message"]
    messages += [answer, {"role": "user", "content": "next"}]
print(json.dumps({"reward": 1.0}))
"""


class TimedSession:
    """A session that answers at once, and tells when it was at work."""

    def __init__(self, session) -> None:
        self.session, self.spans = session, []

    def generate(self, requests):
        began = time.monotonic()
        responses = self.session.generate(requests)
        self.spans.append((began, time.monotonic()))
        self.session.requests.clear()
        return responses

    def close(self) -> None:
        self.session.close()


def play(folder: Path, num_episodes: int, num_calls: int) -> tuple[list[dict], TimedSession]:
    (folder / "agent.py").write_text(PROGRAM)
    (folder / "tasks.jsonl").write_text(json.dumps({"text": "a"}))
    command = [sys.executable, "-S", str(folder / "agent.py"), str(num_calls)]
    settings = ProgramSettings(command=command, tasks=str(folder / "tasks.jsonl"))
    tokenizer = make_tokenizer()
    contexts = ContextBuilder(tokenizer, AGENT, SAMPLING.max_response_tokens)
    engine = ScriptedEngine(tokenizer, lambda *_: "<think>so</think><answer>Left</answer>")
    session = TimedSession(engine.session(SAMPLING, contexts.stop_token_ids))
    episodes = [Episode(f"g{number // 8}", number % 8, 0, number, number) for number in range(num_episodes)]
    turns = player.play(session, contexts, tokenizer, settings, AGENT, SAMPLING, 4096, episodes)
    return turns.to_pylist(), session


def test_endpoint_loses_none_of_64_programs(tmp_path, monkeypatch):
    answered: list[tuple[float, float]] = []
    answer = endpoint.PendingCall.answer

    def timed(call, reply):
        answered.append((call.arrived, time.monotonic()))
        answer(call, reply)

    monkeypatch.setattr(endpoint.PendingCall, "answer", timed)
    rows, session = play(tmp_path, 64, 30)
    assert [row["status"] for row in rows] == ["ok"] * 64 * 30
    first, last = min(arrived for arrived, _ in answered), max(left for _, left in answered)
    engine_s = sum(end - begin for begin, end in session.spans)
    added_ms = (last - first - engine_s) / len(answered) * 1e3
    waited_ms = statistics.median(left - arrived for arrived, left in answered) * 1e3
    print(
        f"\na call waits {waited_ms:.1f} ms at the endpoint in the median, {added_ms:.2f} ms for each with programs "
        f"included; {len(answered) / len(session.spans):.1f} calls a round"
    )
    assert waited_ms <= 10


def test_memory_flat_over_many_episodes(tmp_path):
    process, used = psutil.Process(), []
    for _ in range(32):
        rows, _ = play(tmp_path, 64, 3)
        assert [row["status"] for row in rows] == ["ok"] * 64 * 3
        used.append(process.memory_info().rss / 2**20)
    print(f"\n{used[7]:.0f} MiB after 512 episodes, {used[-1]:.0f} after {32 * 64}")
    assert used[-1] - used[7] < 16
