"""`ragen record`: what a program says to a policy becomes a run."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.core.errors import StarPOError
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


def test_what_cannot_be_recorded_is_said_and_leaves_no_run(store, policy):
    missing = record(store, policy, "--", "no-such-agent")
    assert isinstance(missing.exception, StarPOError)
    assert "the command 'no-such-agent' is not found here" in str(missing.exception)
    alone = record(store, policy, "--server", "http://127.0.0.1:9/v1", "--", "true")
    assert "--server and --model go together" in str(alone.exception)
    assert not Path(store.url, "runs", "seen").exists()
