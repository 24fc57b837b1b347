"""Programs as players: what they hear is what is recorded, and whatever they do has a status of its own."""

import json
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout import loop
from starpo.ragen.agents.rollout.costs import take_usage
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.agents.rollout.turn_images import take_images
from starpo.ragen.agents.vision.tiny_vision import TinyVisionConfig, TinyVisionForCausalLM
from starpo.ragen.config.agent import CHAT_TEMPLATES, AgentConfig
from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.make import environment_code
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.methods.programs import endpoint, player
from starpo.ragen.methods.programs.chat import RunSampling
from starpo.ragen.methods.programs.endpoint import PendingCall
from starpo.ragen.methods.programs.process import Ended
from starpo.ragen.methods.programs.requests import read_request
from starpo.ragen.methods.programs.served import Served
from starpo.ragen.methods.programs.settings import ProgramSettings
from starpo.ragen.methods.programs.spelling import Spelling
from starpo.ragen.methods.programs.tasks import task_of
from starpo.ragen.methods.programs.trajectory import ProgramTrajectory, ShardContext
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.manifest import Stage
from starpo.schemas.validate import validate
from tests.ragen.agents.rollout.conftest import ScriptedEngine

AGENT = AgentConfig(prompt="state", should_think=False, max_turns=4)
SAMPLING = SamplingConfig(max_response_tokens=24)
GAMES = {
    "frozen_lake": FrozenLakeSettings(observation="compact"),
    "sokoban": SokobanSettings(observation="compact", generator="distance", min_solution=2, max_solution=4),
}


@pytest.fixture(scope="module")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A policy that reads text."""
    return policy_in(str(tmp_path_factory.mktemp("policy")), LlamaConfig, LlamaForCausalLM, make_tokenizer())


@pytest.fixture(scope="module")
def seeing_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A policy that sees images."""
    tokenizer = make_tokenizer(patch_size=32)
    config = partial(TinyVisionConfig.seeing, tokenizer.image_tokens)
    return policy_in(str(tmp_path_factory.mktemp("seeing")), config, TinyVisionForCausalLM, tokenizer)


def policy_in(folder, make_config, make_model, tokenizer) -> str:
    """A policy with weights by hand: most responses are a move in its tags, and all depend on the whole context."""
    width = 64
    config = make_config(
        vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=32, max_position_embeddings=2048, tie_word_embeddings=False,
    )  # fmt: skip
    line, opening, move, closing = tokenizer.encode("\n<answer>Left</answer>", add_special_tokens=False)
    moves = [move, *(tokenizer.convert_tokens_to_ids(name) for name in ("Right", "Up", "Down"))]
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(0)
        model = make_model(config)
        embedded, head = model.model.embed_tokens.weight, model.lm_head.weight
        head.zero_()
        following = {
            line: [opening],
            opening: moves,
            **{name: [closing] for name in moves},
            closing: [tokenizer.eos_token_id],
        }
        for place, (token, next_tokens) in enumerate(following.items()):
            embedded[token] = torch.eye(width)[place]
            head[next_tokens, place] = 1.05
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def played(play, folder, settings, agent, episodes, sampling=SAMPLING, max_context_tokens=1024):
    engine = TorchEngine(num_threads=1)
    engine.load(folder, "key")
    tokenizer = load_tokenizer(folder)
    contexts = ContextBuilder(tokenizer, agent, sampling.max_response_tokens)
    session = engine.session(sampling, contexts.stop_token_ids)
    table = play(session, contexts, tokenizer, settings, agent, sampling, max_context_tokens, episodes)
    validate(take_images(table)[0] if agent.shows_images else table, "turns")
    return table


@pytest.mark.ci
@pytest.mark.parametrize(
    ("game", "changes"),
    [
        ("sokoban", {}),
        ("frozen_lake", {"prompt": "full", "system_prompt": "You play a game."}),
        ("frozen_lake", {"observation": "image"}),
    ],
)
def test_external_program_equals_built_in_loop(game, changes, request, tmp_path, monkeypatch):
    folder = request.getfixturevalue("seeing_folder" if "observation" in changes else "policy_folder")
    monkeypatch.setattr(player, "LINGER_S", 600.0)  # full rounds, as in the built-in loop: then the bytes are equal
    agent = AGENT.model_copy(update=changes)
    tasks = [
        {"env_seed": seed, "environment": GAMES[game].model_dump(), "agent": agent.model_dump(),
         "max_tokens": SAMPLING.max_response_tokens}
        for seed in (3, 4)
    ]  # fmt: skip
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    script = Path(__file__).with_name("game_agent.py")
    settings = ProgramSettings(command=[sys.executable, str(script)], tasks=str(tmp_path / "tasks.jsonl"))
    episodes = [Episode(f"g{seed}", member, seed, member, 100 + member) for seed in (0, 1) for member in range(2)]
    built_in = [replace(one, env_seed=task_of(settings, one.env_seed)["env_seed"]) for one in episodes]

    heard = played(player.play, folder, settings, agent, episodes).to_pylist()
    expected = played(loop.play, folder, GAMES[game], agent, built_in).to_pylist()

    assert len(expected) > len(episodes)
    assert any(row["executed_actions"] for row in expected)
    names = (
        "trajectory_id", "turn", "prompt_ids", "response_ids", "behaviour_logprobs", "is_context_start", "response",
        "finish_reason", "success", *(["images"] if agent.shows_images else []),
    )  # fmt: skip
    assert not agent.shows_images or len({one["image"] for row in heard for one in row["images"]}) > 2
    assert [[row[name] for name in names] for row in heard] == [[row[name] for name in names] for row in expected]
    paid = [{}, {}]
    for rows, sums in zip((heard, expected), paid, strict=True):
        for row in rows:
            sums[row["trajectory_id"]] = sums.get(row["trajectory_id"], 0.0) + sum(row["action_rewards"])
    assert paid[0] == pytest.approx(paid[1])


ASKING = """
import json, os, sys, time, urllib.error, urllib.request

def ask(*messages, key=os.environ["OPENAI_API_KEY"], timeout=None, **more):
    body = json.dumps({"model": "policy", "messages": list(messages), **more}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request, timeout=timeout))["choices"][0]

def user(text):
    return {"role": "user", "content": text}

def end(reward):
    print(json.dumps({"reward": reward, "success": reward > 0}))
"""


@pytest.fixture
def run(tmp_path):
    """`run(code, say)`: rows of two members whose program is this code; `say(trajectory id, turn)` is the policy."""
    tokenizer = make_tokenizer()

    def rows(code, say=lambda *_: "Left", max_context_tokens=400, deadline_s=None, tokens=12, agent=AGENT, **limits):
        (tmp_path / "agent.py").write_text(ASKING + code)
        (tmp_path / "tasks.jsonl").write_text('{"text": "a"}\n')
        settings = ProgramSettings(
            command=[sys.executable, str(tmp_path / "agent.py")], tasks=str(tmp_path / "tasks.jsonl"), **limits
        )
        sampling = SamplingConfig(max_response_tokens=tokens)
        contexts = ContextBuilder(tokenizer, agent, tokens)
        session = ScriptedEngine(tokenizer, lambda name, turn: say(name.partition("/")[0], turn)).session(
            sampling, contexts.stop_token_ids
        )
        episodes = [Episode("g", member, 0, member, 100 + member) for member in range(2)]
        table = player.play(
            session, contexts, tokenizer, settings, agent, sampling, max_context_tokens, episodes, deadline_s
        )
        validate(table, "turns")
        validity = compute_rewards(table, RewardConfig(components=["environment"]))["is_valid"].to_pylist()
        return [row | {"is_valid": is_valid} for row, is_valid in zip(table.to_pylist(), validity, strict=True)]

    return rows


@pytest.mark.ci
@pytest.mark.parametrize(
    ("code", "limits", "num_answered", "status", "error"),
    [
        ("end(1)", {}, 0, "env_error", "ProgramCalledNothing"),
        ("ask(user('a')); sys.exit(3)", {}, 1, "env_error", "ProgramDied"),
        ("ask(user('a')); os.kill(os.getpid(), 9)", {}, 1, "env_error", "ProgramDied"),
        ("ask(user('a')); time.sleep(60)", {"time_limit_s": 8.0}, 1, "env_error", "ProgramHung"),
        ("ask(user('a')); print('well done')", {}, 1, "env_error", "ProgramRewardFailed"),
        ("ask(user('a')); time.sleep(60)", {"deadline_s": 8.0}, 1, "timeout", "deadline"),
        ("ask(user('a' * 900)); end(1)", {}, 0, "truncated", "context full"),
    ],
)
def test_every_program_end_has_a_status(code, limits, num_answered, status, error, run):
    rows = run(code, **limits)
    assert len(rows) == 2 * (num_answered + 1)
    for row in rows[num_answered :: num_answered + 1]:
        assert row["status"] == status
        assert error in json.loads(row["info"])["error"]
        assert row["is_valid"] == (status == "truncated")
        assert row["action_rewards"] == []


@pytest.mark.ci
def test_unstartable_program_is_environment_error(run, monkeypatch):
    def refuse(*_):
        raise OSError("no such program")

    monkeypatch.setattr(player, "RunningProgram", refuse)
    assert [(row["status"], json.loads(row["info"])["error"]) for row in run("")] == [
        ("env_error", "ProgramNotStarted")
    ] * 2


@pytest.mark.ci
def test_reward_belongs_to_last_turn(run):
    rows = run("ask(user('a')); ask(user('b')); end(0.5)")[:2]
    assert [(row["action_rewards"], row["success"], row["terminated"], row["status"]) for row in rows] == [
        ([0.0], False, False, "ok"), ([0.5], True, True, "ok"),
    ]  # fmt: skip
    assert [row["observation"] for row in rows] == ["a", "b"]
    assert json.loads(rows[1]["info"])["conversations"] == 2


@pytest.mark.ci
def test_call_limit_truncates_catchably(run):
    program = "answers = [ask(user(str(n))) for n in range(3)]; end(1)"
    last = run(program, max_calls=2)[1]
    assert (last["truncated"], last["status"], last["action_rewards"]) == (True, "ok", [0.0])
    caught = "try:\n    [ask(user(str(n))) for n in range(3)]\nexcept urllib.error.HTTPError: pass\nend(1)"
    last = run(caught, max_calls=2)[1]
    assert (last["truncated"], last["terminated"], last["action_rewards"]) == (False, True, [1.0])
    info = json.loads(last["info"])
    assert (info["refused"], info["limit"]) == (1, "this trajectory has had its 2 responses (environment.max_calls)")
    assert "refusals" not in info


@pytest.mark.ci
def test_death_by_cut_response_is_truncated(run):
    code = "first = ask(user('a'))\nif first['finish_reason'] == 'length': raise ValueError('half')\nend(1)"
    for row in run(code, lambda *_: "Left Right Down Up" * 9):
        assert (row["truncated"], row["terminated"], row["is_valid"]) == (True, False, True)
        assert (row["action_rewards"], row["success"]) == ([0.0], False)
        assert json.loads(row["info"])["message"] == "exit status 1: ValueError: half"


def test_program_killed_by_limit_before_answer(program):
    tokenizer = make_tokenizer()
    contexts = ContextBuilder(tokenizer, AGENT, 12)
    context = ShardContext(
        contexts, tokenizer, Spelling(tokenizer, contexts), SamplingConfig(max_response_tokens=12), 400
    )
    trajectory = ProgramTrajectory(Episode("g", 0, 0, 0, 100), program("", max_calls=1), {"n": 0}, context)
    body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "a"}]}).encode()
    first, second = (PendingCall("g-0", read_request(body, RunSampling())) for _ in range(2))
    with ThreadPoolExecutor(1) as pool:
        requests = [trajectory.ask(call, pool.submit(trajectory.prompt, call.request)) for call in (first, second)]
    assert [request is None for request in requests] == [False, True]
    served = Served()
    served.refuse(second.answered.result())
    trajectory.end(Ended("died", "exit status 1", ""), served)
    (row,) = trajectory.rows
    assert (row["status"], json.loads(row["info"])["error"]) == ("env_error", "ProgramDied")
    assert "1 of its requests were refused, as: this trajectory has had its 1 responses" in row["info"]


@pytest.mark.ci
def test_abandoned_calls_are_no_turns(run):
    code = """
for _ in range(40):  # a busy machine may not hear of a request before it is abandoned
    try:
        ask(user("a"), timeout=0.05)
    except urllib.error.HTTPError:
        sys.exit(1)
    except OSError:
        time.sleep(0.2)
"""

    def slowly(*_):
        time.sleep(0.4)
        return "Left"

    rows = run(code, slowly, max_calls=3)
    assert [row["status"] for row in rows] == ["env_error"] * 2
    assert "did not wait for 3: give its client a longer timeout" in json.loads(rows[0]["info"])["message"]


@pytest.mark.ci
def test_swallowed_refusal_is_reported(run):
    code = """
for _ in range(2):
    try:
        ask(user("a"), n=4)
    except urllib.error.HTTPError:
        pass
"""
    rows = run(code)
    assert len(rows) == 2
    info = json.loads(rows[0]["info"])
    assert (info["error"], info["refused"], info["refusals"]) == (
        "ProgramCalledNothing", 2, ["n is 4. Input should be 1"],
    )  # fmt: skip
    assert info["message"].startswith("2 of its requests were refused, as: n is 4")
    assert [(one["request"], one["field"]) for one in info["refused_requests"]] == [(1, "n"), (2, "n")]


def test_endlessly_refused_program_is_ended(run, monkeypatch):
    monkeypatch.setattr(endpoint, "MAX_REFUSED", 4)
    monkeypatch.setattr(player, "MAX_REFUSED", 4)
    code = """
while True:
    try:
        ask(user("a"), n=4)
    except urllib.error.HTTPError:
        pass
"""
    rows = run(code)
    assert [json.loads(row["info"])["refused"] for row in rows] == [4, 4]
    assert {row["status"] for row in rows} == {"env_error"}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("text", "content", "status"),
    [
        ('<think>a price</think>{"price": 1}', '{"price": 1}', "ok"),
        ('{"price": 1}', '{"price": 1}', "ok"),
        ("Left", "Left", "format_error"),
    ],
)
def test_structured_output_prompted_and_returned_verbatim(text, content, status, run):
    code = """
schema = {"type": "json_schema", "json_schema": {"name": "p", "schema": {"type": "object"}}}
first = ask(user("a"), response_format=schema, temperature=0.2)["message"]
ask(user("a"), first, user("b"), response_format=schema, logprobs=True)
print(json.dumps(first["content"]), file=sys.stderr)
end(float(first["content"] == CONTENT))
""".replace("CONTENT", repr(content))
    rows = run(code, lambda *_: text, tokens=40)[:2]
    wish = "Respond with one JSON object and nothing else. It must match this JSON schema:\n" + '{"type": "object"}'
    assert [row["observation"] for row in rows] == [f"a\n\n{wish}", f"b\n\n{wish}"]
    assert [row["is_context_start"] for row in rows] == [True, False]
    assert [row["response"] for row in rows] == [text, text]
    assert rows[1]["action_rewards"] == [1.0]
    assert {row["status"] for row in rows} == {status}
    info = json.loads(rows[1]["info"])
    assert (info["required"], info["overridden"]) == ("json_schema", {"temperature": 1})


@pytest.mark.ci
def test_interleaved_conversations_keep_sampled_tokens(run):
    code = """
left, right = [user("left")], [user("right")]
for turn in range(2):
    for messages in (left, right):
        messages += [ask(*messages)["message"], user(f"go on {turn}")]
end(1)
"""
    rows = run(code, lambda _, turn: f"Left {turn}")[:4]
    assert [json.loads(row["info"])["conversation"] for row in rows] == [0, 1, 0, 1]
    assert all(row["is_context_start"] for row in rows)
    for before, after in ((rows[0], rows[2]), (rows[1], rows[3])):
        context = before["prompt_ids"] + before["response_ids"]
        assert after["prompt_ids"][: len(context)] == context
    assert rows[2]["observation"] == "go on 0"


@pytest.mark.ci
def test_program_gets_calls_after_reasoning(run):
    code = """
tools = [{"type": "function", "function": {"name": name}} for name in ("buy", "look")]
messages = [user("a")]
while (answer := ask(*messages, tools=tools)["message"]).get("tool_calls"):
    calls = answer["tool_calls"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": call["function"]["name"]} for call in calls]
    messages += [answer, *results]
assert answer["content"] == "look look", answer
end(1)
"""
    buy, look = (f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>' for name in ("buy", "look"))

    def say(_, turn):
        return f"<think>shall I {buy}? No: <tool_call></think>{look}{look}" if turn == 0 else "look look"

    agent = AGENT.model_copy(update={"chat_template": CHAT_TEMPLATES["hermes"].read_text()})
    first, second = run(code, say, max_context_tokens=2000, tokens=200, agent=agent)[:2]
    assert [(row["status"], row["terminated"]) for row in (first, second)] == [("ok", False), ("ok", True)]
    assert first["executed_actions"] == ['{"arguments": {}, "name": "look"}\n{"arguments": {}, "name": "look"}']
    assert not second["is_context_start"]


@pytest.mark.ci
def test_slow_rendering_delays_no_other(run, monkeypatch):
    is_done, waited = threading.Event(), []
    opening = Spelling.opening

    def slowly(self, messages, tools):
        if messages[0].content == "slow":
            waited.append(is_done.wait(60))
        return opening(self, messages, tools)

    def say(name, turn):
        if turn == 4:
            is_done.set()
        return "Left"

    monkeypatch.setattr(Spelling, "opening", slowly)
    code = """
is_slow = json.loads(os.environ["STARPO_TASK"])["dynamics_seed"] == 1
messages = [user("slow" if is_slow else "fast")]
for _ in range(1 if is_slow else 5):
    messages += [ask(*messages)["message"], user("go on")]
end(1)
"""
    rows = run(code, say)
    assert waited == [True]
    assert [row["terminated"] for row in rows] == [False] * 4 + [True] * 2


@pytest.mark.ci
def test_response_cut_to_delivered_part(run):
    code = """
first = ask(user("a"), stop=["Right"])
second = ask(user("b"), max_tokens=2)
third = ask(user("c"), max_tokens=3, stop=["Up"])
print([first["message"]["content"], first["finish_reason"]], file=sys.stderr)
assert first["message"]["content"] == "Left " and first["finish_reason"] == "stop", first
assert second["finish_reason"] == third["finish_reason"] == "length"
end(1)
"""
    tokenizer = make_tokenizer()
    whole = tokenizer.encode("Left Right Down Up", add_special_tokens=False)
    for row, is_stopped in zip(run(code, lambda *_: "Left Right Down Up")[:3], (True, False, False), strict=True):
        number = len(row["response_ids"])
        assert row["response_ids"] == whole[:number]
        assert len(row["behaviour_logprobs"]) == number < len(whole)
        assert row["response"] == tokenizer.decode(whole[:number])
        assert (row["finish_reason"], row["status"]) == ("stop" if is_stopped else "length", "ok")


@pytest.mark.ci
def test_undelivered_response_is_no_turn(run):
    code = """
import socket
from urllib.parse import urlparse
address = urlparse(os.environ["OPENAI_BASE_URL"])
body = json.dumps({"model": "policy", "messages": [user("unheard")]})
key = f"Authorization: Bearer {os.environ['OPENAI_API_KEY']}"
lines = ["POST /v1/chat/completions HTTP/1.1", "Host: x", key, f"Content-Length: {len(body)}", "", body]
with socket.create_connection((address.hostname, address.port)) as hanging_up:
    hanging_up.sendall("\\r\\n".join(lines).encode())
    time.sleep(0.3)
ask(user("heard"))
end(1)
"""

    def slowly(*_):
        time.sleep(1.0)
        return "Left"

    assert [row["observation"] for row in run(code, slowly)] == ["heard", "heard"]


@pytest.mark.ci
def test_player_chosen_by_environment(tmp_path):
    (tmp_path / "agent.py").write_text(ASKING + "ask(user('a')); end(1)")
    (tmp_path / "tasks.jsonl").write_text('{"text": "a"}\n')
    settings = ProgramSettings(
        command=[sys.executable, str(tmp_path / "agent.py")], tasks=str(tmp_path / "tasks.jsonl")
    )
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    engine = ScriptedEngine(tokenizer, lambda *_: "Left")
    job = RolloutJob(str(tmp_path), "key", settings, AGENT, SAMPLING, 400)
    episodes = [Episode("g", 0, 0, 0, 0), Episode("g", 1, 0, 1, 1, is_greedy=True)]
    turns, _ = take_usage(LocalPlayer(engine).play(RolloutJob.from_json(job.to_json()), episodes))
    assert turns["origin"].to_pylist() == ["policy", "greedy"]
    assert turns["action_rewards"].to_pylist() == [[1.0], [1.0]]
    assert engine.sessions[0].requests[0].messages() == [{"role": "user", "content": "a"}]
    assert environment_code(settings)["loop"] == "starpo.ragen.methods.programs.player:play"
    assert "loop" not in environment_code(GAMES["sokoban"])


@pytest.mark.ci
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("code", "reward"),
    [
        ("open('begun', 'w').close(); time.sleep(600)", "output"),
        ("ask(user('a'))", [sys.executable, "-c", "import time; open('begun', 'w').close(); time.sleep(600)"]),
    ],
    ids=["program", "reward"],
)
def test_stopped_rollout_waits_for_no_program(code, reward, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "agent.py").write_text(ASKING + code)
    (tmp_path / "tasks.jsonl").write_text('{"text": "a"}\n')
    settings = ProgramSettings(
        command=[sys.executable, str(tmp_path / "agent.py")], tasks=str(tmp_path / "tasks.jsonl"), reward=reward
    )
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    job = RolloutJob(str(tmp_path), "key", settings, AGENT, SAMPLING, 400)
    local = LocalPlayer(ScriptedEngine(tokenizer, lambda *_: "Left"))
    with ThreadPoolExecutor() as pool:
        playing = pool.submit(local.play, job, [Episode("g", 0, 0, 0, 0), Episode("g", 1, 0, 1, 1)])
        while not list(tmp_path.glob("ragen-program-*/begun")):
            assert not playing.done(), playing.result()["info"].to_pylist()
            time.sleep(0.01)
        local.stop()
        with pytest.raises(EngineError, match="stopped"):
            playing.result(timeout=30)
    assert not list(tmp_path.glob("ragen-program-*"))


@pytest.mark.ci
def test_program_output_is_inert_in_report(run, tmp_path):
    attack = "</script><script>document.title='owned'</script>"
    code = f"""
ask(user({attack!r}), {{"role": "assistant", "content": {attack!r}}}, user("x"))
print({attack!r})
sys.exit({attack!r})
"""
    rows = run(code, lambda *_: attack, tokens=80, max_context_tokens=900)
    assert attack in rows[0]["observation"]
    assert attack in json.loads(rows[1]["info"])["output"]
    store = Store(str(tmp_path / "store"))
    environment = ProgramSettings(command=["python", "agent.py"], tasks=str(tmp_path / "tasks.jsonl"), about=attack)
    config = StarPOConfig(environment=environment, policy=PretrainedPolicy(name_or_path="a-model"))
    store.runs.create("mine", flow="starpo", preset="mine", config=config.model_dump(mode="json"))
    stage = Stage(name="rollout", version=1)
    key = stage_key(stage, {}, {}, 0)
    facts = Facts(key=key, stage=stage, settings={}, inputs={}, seed=0, provenance={"seconds": 1.0})
    store.put_table("turns", loop.table_of(rows), facts)
    store.runs.record_stage("mine", 0, "rollout", {"turns": key})
    data = gather(store, "mine")
    assert [rollout.num_all for rollout in data.rollouts] == [2]
    assert attack not in render_report(data)
