"""`ragen record`: what a program says to a policy becomes a run."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.config.policy import FineTuning, TinyPolicy
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.learning.stored_episodes import choose_episodes
from starpo.ragen.runs.stored_images import read_places
from starpo.ragen.store import Store

AGENT = """
import json
from openai import OpenAI

said = OpenAI().chat.completions.create(model="policy", messages=[{"role": "user", "content": "up?"}])
print(json.dumps({"reward": 0.5, "length": len(said.choices[0].message.content)}))
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> str:
    folder = str(tmp_path_factory.mktemp("policy"))
    tokenizer = make_tokenizer()
    config = TinyPolicy(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=16)
    make_model(config, tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def record(store: Store, policy: str, *arguments: str):
    limits = ("--set", "rollout.max_response_tokens=8", "--set", "rollout.max_context_tokens=64")
    given = ["record", "seen", "--policy", policy, "--store", store.url, *limits, *arguments]
    return CliRunner().invoke(app, given)


@pytest.mark.parametrize("is_rated", [False, True])
def test_a_command_is_recorded_as_a_run(store, policy, tmp_path, is_rated):
    (tmp_path / "agent.py").write_text(AGENT)
    rated = ("--reward", "output") if is_rated else ()
    made = record(store, policy, "--times", "2", *rated, "--json", "--", sys.executable, str(tmp_path / "agent.py"))
    assert json.loads(made.stdout[made.stdout.index("{") :]) == {
        "run": "seen", "episodes": 2, "failed": 0, "turns": 2
    }, made.output  # fmt: skip
    stages = store.runs.iterations("seen")[0]
    turns = store.read_table("turns", stages["rollout"]["turns"]).to_pylist()
    assert [json.loads(row["info"])["program"] for row in turns] == ["done", "done"]
    assert [sum(row["action_rewards"]) for row in turns] == [0.5 * is_rated] * 2
    assert all(row["response_ids"] for row in turns)
    assert ("reward" in stages) == is_rated


def test_images_are_recorded(store, tmp_path):
    tokenizer = make_tokenizer(patch_size=32)
    config = TinyPolicy(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=16, patch_size=32)
    policy = tmp_path / "policy"
    save_policy(make_model(config, tokenizer), tokenizer, policy)
    shown = Image(np.full((32, 64, 3), 9, np.uint8))
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{shown.to_png()}"}}
    (tmp_path / "agent.py").write_text(AGENT.replace('"up?"', repr([part])))
    given = ("--set", "agent.observation=image", "--json", "--", sys.executable, str(tmp_path / "agent.py"))
    made = record(store, str(policy), *given)
    assert made.exit_code == 0, made.output
    keys = store.runs.iterations("seen")[0]["rollout"]
    assert store.read_table("images", keys["images"])["digest"].to_pylist() == [shown.digest]
    (row,) = store.read_table("turns", keys["turns"]).to_pylist()
    assert json.loads(row["observation"])[0]["images"] == [shown.digest]
    (places,) = read_places(store, keys).values()
    assert [place.image for place in places] == [shown]


class Server(BaseHTTPRequestHandler):
    """A server of completions that always says the same, without log-probs."""

    def do_GET(self):
        self._send({"object": "list", "data": [{"id": "teacher", "object": "model", "created": 0, "owned_by": ""}]})

    def do_POST(self):
        assert json.loads(self.rfile.read(int(self.headers["content-length"])))["prompt"]
        choice = {"index": 0, "text": "Up", "finish_reason": "stop", "logprobs": None}
        self._send({"id": "", "object": "text_completion", "created": 0, "model": "teacher", "choices": [choice]})

    def _send(self, answer):
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_what_a_server_says_is_recorded_and_can_be_imitated(store, policy, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "agent.py").write_text(AGENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        given = ("--server", f"http://127.0.0.1:{server.server_port}/v1", "--model", "teacher", "--protocol")
        program = (sys.executable, str(tmp_path / "agent.py"))
        made = record(store, policy, *given, "completions", "--reward", "output", "--times", "2", "--", *program)
        server.shutdown()
    assert made.exit_code == 0, made.output
    stages = store.runs.iterations("seen")[0]
    keys = {kind: key for stage in stages.values() for kind, key in stage.items()}
    turns, rewards, selection = (store.read_table(kind, keys[kind]) for kind in ("turns", "rewards", "selection"))
    assert [(row["response"], row["behaviour_logprobs"]) for row in turns.to_pylist()] == [("Up", [])] * 2
    fine_tuning = FineTuning(runs=["seen:0"], episodes="all")
    chosen = choose_episodes([(turns, rewards, selection)], fine_tuning, frozenset())
    assert [text for _, text in chosen.responses] == ["Up"] * 2
    chosen.check_tokens(make_tokenizer())


def test_what_cannot_be_recorded_is_said_and_leaves_no_run(store, policy):
    missing = record(store, policy, "--", "no-such-agent")
    assert isinstance(missing.exception, StarPOError)
    assert "the command 'no-such-agent' is not found here" in str(missing.exception)
    alone = record(store, policy, "--server", "http://127.0.0.1:9/v1", "--", "true")
    assert "--server and --model go together" in str(alone.exception)
    assert not Path(store.url, "runs", "seen").exists()
