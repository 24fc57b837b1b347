"""Engine 'openai' against a small server with injected failures; integration/test_vllm.py uses vLLM's own server."""

import math
import threading
import time
from pathlib import Path

import pytest

from starpo.ragen.agents.rollout.costs import take_usage
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.openai.engine import OpenAIEngine
from starpo.ragen.agents.rollout.openai.errors import explained
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.engine import Merging
from starpo.ragen.config.openai_engine import OpenAIServer
from starpo.ragen.config.rollout import RolloutConfig, SamplingConfig
from starpo.ragen.core.errors import ConfigError, EngineError
from tests.openai_server import SAID, Server

openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")

KEY = "sk-a-key-that-must-not-be-shown"
SINGLES = make_episodes([(f"g{number}", number) for number in range(6)], group_size=1, shard_groups=1)
SHARDS = make_episodes([("g0", 1), ("g1", 2)], group_size=3, shard_groups=1)
STATE = AgentConfig(prompt="state")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()


@pytest.fixture
def play(server, tokenizer_folder, corridor, monkeypatch):
    """`play(agent, **options)`: rows and usage of six corridor episodes played against the server."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.02)

    def play(agent=STATE, **options):
        options = {"base_url": server.url, "model": "a-model", "timeout_s": 1.0, "max_retries": 3, **options}
        job = RolloutJob(tokenizer_folder, "key", corridor(), agent, SamplingConfig(max_response_tokens=40), 4096)
        return take_usage(play_shards(LocalPlayer(OpenAIEngine(**options)), job, SHARDS))

    return play


def test_whole_episodes_are_played(server, play):
    turns, usage = play(prompt_price=2.0, response_price=8.0)
    assert turns["trajectory_id"].to_pylist() == [f"g{g}-{m}" for g in (0, 1) for m in (0, 1, 2) for _ in range(3)]
    assert set(turns["status"].to_pylist()) == {"ok"}
    assert all(turns["success"].to_pylist()[2::3])
    assert all(math.isnan(value) for row in turns["behaviour_logprobs"].to_pylist() for value in row)
    # 18 turns of 100 prompt tokens at 2 and 10 response tokens at 8 per million: 18 * (200 + 80) / 1e6
    expected = {"requests": 18, "retries": 0, "prompt_tokens": 1800, "response_tokens": 180, "cost": 0.00504}
    assert usage == pytest.approx(expected)
    assert server.greetings == 1


def test_prompts_sent_as_ids_with_key(server, play, tokenizer):
    play()
    _, _, path, body, authorization = server.requests[0]
    assert path == "/v1/completions"
    assert "P 0" in tokenizer.decode(body["prompt"])
    assert authorization == f"Bearer {KEY}"
    assert {"model": "a-model", "max_tokens": 40, "temperature": 1.0}.items() <= body.items()
    assert "return_token_ids" not in body


def test_length_limit_uses_server_parameter(server, play):
    play(protocol="chat", limit_parameter="max_completion_tokens")
    body = server.requests[0][3]
    assert body["max_completion_tokens"] == 40
    assert "max_tokens" not in body


def test_chat_gets_context_messages(server, play):
    turns, _ = play(AgentConfig(prompt="state", should_prefill_think=True, should_show_reward=False), protocol="chat")
    assert set(turns["status"].to_pylist()) == {"ok"}  # a tag that the model writes itself is not doubled
    path, messages = max(((entry[2], entry[3]["messages"]) for entry in server.requests), key=lambda pair: len(pair[1]))
    assert path == "/v1/chat/completions"
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2 + ["user"]
    assert [message["content"] for message in messages] == ["P 0", SAID, "P 1", SAID, "P 2"]


def test_template_opened_tag_not_doubled(play):
    template = Path(__file__).parents[1] / "prompting" / "templates" / "opens_thought.jinja"
    agent = AgentConfig(
        prompt="state", should_prefill_think=True, earlier_thoughts="dropped", chat_template=str(template)
    )
    turns, _ = play(agent, protocol="chat")
    assert set(turns["status"].to_pylist()) == {"ok"}


@pytest.mark.ci
@pytest.mark.parametrize("failures", [["500"], ["503", "reset", "cut"], ["429"], ["silence"]])
def test_passing_failures_cost_only_time(server, play, failures):
    server.script = list(failures)
    turns, usage = play(max_concurrent=1)
    assert set(turns["status"].to_pylist()) == {"ok"}
    assert usage["retries"] == len(failures)
    assert usage["requests"] == 18


def test_no_more_in_flight_than_allowed(server, play):
    server.delay_s = 0.02
    play(max_concurrent=2)
    assert server.most_in_flight == 2


def test_shards_at_once_share_the_limit(server, tokenizer_folder, corridor):
    server.delay_s = 0.02
    engine = OpenAIEngine(base_url=server.url, model="a-model", max_concurrent=2)
    job = RolloutJob(tokenizer_folder, "key", corridor(), STATE, SamplingConfig(max_response_tokens=40), 4096)
    merging = Merging(num_episodes=1, num_at_once=4)
    turns, usage = take_usage(play_shards(LocalPlayer(engine), job, SINGLES, merging=merging))
    assert (turns.num_rows, usage["requests"]) == (18, 18)
    assert server.most_in_flight == 2
    assert server.greetings == 1
    engine.close()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("500", r"failed with status 500, in 4 attempts"),
        ("429", r"still limits the rate after 4 attempts .* lower rollout\.openai\.max_concurrent"),
        ("reset", r"cannot be reached .* in 4 attempts; check rollout\.openai\.base_url, and"),
        ("silence", r"no answer within 0\.1 s, in 4 attempts; raise rollout\.openai\.timeout_s"),
        ("401", r"refuses the key \(status 401\).* environment variable OPENAI_API_KEY to"),
        ("404", r"has no such address or no model 'a-model'"),
        ("html", r"does not follow OpenAI's protocol .* it usually ends in /v1"),
        ("odd", r"does not follow OpenAI's protocol"),
    ],
)
def test_lasting_failure_message_hides_key(server, play, failure, message):
    server.script = [failure] * 100
    started = time.monotonic()
    with pytest.raises(EngineError, match=message) as caught:
        play(max_concurrent=2, **({"timeout_s": 0.1} if failure == "silence" else {}))
    assert server.url in str(caught.value)
    assert KEY not in str(caught.value)
    assert time.monotonic() - started < 10


def test_unknown_model_suggests_near_ones(server, play):
    server.models = ["a-modal", "another"]
    with pytest.raises(EngineError, match=r"has no model 'a-model' \(rollout.openai.model\); it has a-modal"):
        play()
    assert not server.requests


def test_missing_server_is_one_error(play):
    with pytest.raises(EngineError, match=r"http://127\.0\.0\.1:9/v1 cannot be reached"):
        play(base_url="http://127.0.0.1:9/v1")


def test_server_without_token_ids_refused(server, play):
    with pytest.raises(EngineError, match=r"returns no token_ids, .*protocol = 'vllm' needs; set 'completions'"):
        play(protocol="vllm")
    assert server.requests[0][3]["return_token_ids"] is True


def test_incomplete_settings_name_the_missing():
    with pytest.raises(ValueError, match=r"engine = 'openai' needs openai\.base_url"):
        RolloutConfig(engine="openai")
    with pytest.raises(ValueError, match="base_url"):
        RolloutConfig(engine="openai", openai={"base_url": "http://me:secret@host/v1", "model": "m"})


def test_cannot_be_trained_on():
    from starpo.flows.presets import preset
    from starpo.ragen.config.load import apply_overrides
    from starpo.tasks.rollout import rollout

    settings = {"engine": "openai", "openai.base_url": "http://127.0.0.1:9/v1", "openai.model": "m"}
    config = apply_overrides(preset("smoke"), {f"rollout.{name}": value for name, value in settings.items()})
    with pytest.raises(ConfigError, match=r"cannot be trained on: .* no log-probs"):
        rollout(0, config, "c" * 64)


def test_hidden_thinking_answer_is_malformed(server, play):
    server.say, server.finish = "", "length"
    turns, _ = play()
    assert all(turns["response_ids"].to_pylist())
    assert set(turns["status"].to_pylist()) == {"format_error"}
    assert set(turns["finish_reason"].to_pylist()) == {"length"}


def test_key_at_quote_end_is_hidden(monkeypatch):
    config = OpenAIServer(base_url="http://127.0.0.1:9/v1", model="a-model")
    monkeypatch.setenv(config.key_variable, KEY)
    request = httpx.Request("POST", config.base_url)
    body = f"{'x' * 290} Bearer {KEY}"  # the quoted part ends within the key
    failed = openai.APIStatusError(body, response=httpx.Response(500, request=request), body=None)
    assert KEY[:4] not in str(explained(failed, config, 0))


def test_same_tokenizer_gives_its_tokens(server, play, tokenizer):
    server.token_ids = tokenizer.encode(SAID, add_special_tokens=False)
    turns, _ = play(protocol="vllm")
    assert {tuple(ids) for ids in turns["response_ids"].to_pylist()} == {tuple(server.token_ids)}


@pytest.mark.parametrize(("token_ids", "message"), [([10**6], "are 1000000 and less, of"), ([65, 66], "read '")])
def test_another_tokenizer_is_refused(server, play, token_ids, message):
    server.token_ids = token_ids
    with pytest.raises(EngineError, match=f"has another tokenizer than the checkpoint.*{message}"):
        play(protocol="vllm")
