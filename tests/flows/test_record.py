"""`starpo record`: what a program says to a policy becomes a run."""

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
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import FineTuning, TinyPolicy
from starpo.ragen.core.errors import LearnerError, StarPOError
from starpo.ragen.learning.learners.data.trajectories import assemble
from starpo.ragen.learning.stored_episodes import choose_episodes
from starpo.ragen.runs.stored_images import read_places
from starpo.ragen.store import Store
from tests.flows.documents import check

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


@pytest.mark.ci
@pytest.mark.parametrize("is_rated", [False, True])
def test_command_recorded_as_run(store, policy, tmp_path, is_rated):
    (tmp_path / "agent.py").write_text(AGENT)
    rated = ("--reward", "output") if is_rated else ()
    made = record(store, policy, "--times", "2", *rated, "--json", "--", sys.executable, str(tmp_path / "agent.py"))
    assert made.exit_code == 0, made.output
    assert check("record", made.stdout) == {
        "run": "seen", "episodes": 2, "failed": 0, "turns": 2, "server_errors": None
    }  # fmt: skip
    stages = store.runs.iterations("seen")[0]
    turns = store.read_table("turns", stages["rollout"]["turns"]).to_pylist()
    assert [json.loads(row["info"])["program"] for row in turns] == ["done", "done"]
    assert [sum(row["action_rewards"]) for row in turns] == [0.5 * is_rated] * 2
    assert all(row["response_ids"] for row in turns)
    assert ("reward" in stages) == is_rated


@pytest.mark.ci
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


@pytest.mark.ci
def test_server_responses_recorded_and_imitable(store, policy, tmp_path, monkeypatch):
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
    assert [text for episode in chosen.episodes for _, text in episode.responses] == ["Up"] * 2
    made = chosen.tokenised(make_tokenizer(), AgentConfig(), 64)
    assert [example.response_mask.sum() for example in made.examples] == [2, 2]


TOOL_AGENT = """
import json
from openai import OpenAI

client = OpenAI(max_retries=0)
tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "where?"}]
for _ in range(2):
    said = client.chat.completions.create(model="policy", messages=messages, tools=tools).choices[0].message
    messages.append(said.model_dump(exclude_none=True))
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "a wall"} for call in said.tool_calls or ()]
print(json.dumps({"reward": float(said.content == "by the wall")}))
"""


class Teacher(Server):
    """A server that takes messages alone: it calls the tool, then answers; every third request fails."""

    requests: list[dict] = []  # noqa: RUF012
    fails_every = 0

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.requests.append(body)
        if self.fails_every and len(self.requests) % self.fails_every == 0:
            self.send_response(400)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        call = {"id": "call_7", "type": "function", "function": {"name": "look", "arguments": '{"to": "north"}'}}
        is_first = body["messages"][-1]["role"] == "user"
        message = {"tool_calls": [call], "content": None} if is_first else {"content": "by the wall"}
        message["reasoning_content"] = "I see."
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
        usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        self._send({"id": "", "object": "chat.completion", "created": 0, "model": "teacher",
                    "choices": [choice], "usage": usage})  # fmt: skip


def record_teacher(store, tmp_path, *arguments: str):
    (tmp_path / "agent.py").write_text(TOOL_AGENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), Teacher) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        given = ("--server", f"http://127.0.0.1:{server.server_port}/v1", "--model", "teacher", "--protocol", "chat")
        program = ("--", sys.executable, str(tmp_path / "agent.py"))
        made = CliRunner().invoke(app, ["record", "seen", "--store", store.url, *given, *arguments, *program])
        server.shutdown()
    return made


@pytest.mark.ci
def test_message_teacher_recorded_as_text(store, tmp_path, monkeypatch):
    """Without a policy: tools reach the server, its calls the program, and no token is made up."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(Teacher, "requests", [])
    made = record_teacher(store, tmp_path, "--reward", "output")
    assert made.exit_code == 0, made.output
    assert [request["tools"][0]["function"]["name"] for request in Teacher.requests] == ["look", "look"]
    assert Teacher.requests[1]["messages"][-2]["tool_calls"][0]["id"] == "call_7"
    assert Teacher.requests[1]["messages"][-1] == {"role": "tool", "tool_call_id": "call_7", "content": "a wall"}
    keys = {kind: key for stage in store.runs.iterations("seen")[0].values() for kind, key in stage.items()}
    turns, rewards, selection = (store.read_table(kind, keys[kind]) for kind in ("turns", "rewards", "selection"))
    rows = turns.to_pylist()
    assert [(row["prompt_ids"], row["response_ids"], row["finish_reason"]) for row in rows] == [([], [], "unknown")] * 2
    assert [row["is_context_start"] for row in rows] == [True, False]
    assert sum(rows[-1]["action_rewards"]) == 1.0
    (episode,) = choose_episodes([(turns, rewards, selection)], FineTuning(runs=["seen:0"]), frozenset()).episodes
    (conversation,) = episode.conversations
    assert [message["role"] for message in conversation.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert conversation.learned == [2, 4]
    called = conversation.messages[2]
    assert (called["reasoning_content"], called["tool_calls"][0]["function"]["arguments"]) == (
        "I see.",
        {"to": "north"},
    )
    assert json.dumps(conversation.tools) == json.dumps(Teacher.requests[0]["tools"])
    with pytest.raises(LearnerError, match="without the tokens of its responses"):
        assemble(turns, rewards, selection.set_column(
            selection.schema.get_field_index("kept"), "kept", [[True] * selection.num_rows]))  # fmt: skip


@pytest.mark.ci
def test_teacher_errors_are_program_errors(store, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr(Teacher, "requests", [])
    monkeypatch.setattr(Teacher, "fails_every", 4)
    made = record_teacher(store, tmp_path, "--times", "3", "--set", "rollout.openai.max_concurrent=1")
    assert made.exit_code == 0, made.output
    assert "1 call failed at the server: the server at http" in made.output
    rows = store.read_table("turns", store.runs.iterations("seen")[0]["rollout"]["turns"]).to_pylist()
    (failed,) = (json.loads(row["info"]) for row in rows if row["status"] == "env_error")
    assert failed["error"] == "ProgramDied"
    assert "status 400" in failed["server"]


def test_unrecordable_episode_leaves_no_run(store, policy):
    missing = record(store, policy, "--", "no-such-agent")
    assert isinstance(missing.exception, StarPOError)
    assert "the command 'no-such-agent' is not found here" in str(missing.exception)
    for given, message in ((("--protocol", "chat"), "name it with --server"), ((), "--policy is missing")):
        refused = CliRunner().invoke(app, ["record", "seen", "--store", store.url, *given, "--", "true"])
        assert message in str(refused.exception)
    alone = record(store, policy, "--server", "http://127.0.0.1:9/v1", "--", "true")
    assert "--server and --model go together" in str(alone.exception)
    assert not Path(store.url, "runs", "seen").exists()
