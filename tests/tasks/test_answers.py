"""Free-form answers, from demonstration to stored reward: executed actions are stored in the grammar's own form."""

from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.rollout.engine import Response
from starpo.ragen.agents.rollout.torch_session import TorchSession
from starpo.ragen.runs.stored_policy import find_tokenizer
from starpo.ragen.store import Store
from starpo.tasks.reward import reward
from starpo.tasks.rollout import rollout
from starpo.tasks.warm_start import warm_start

SMALL = {
    "policy.hidden_size": 32,
    "policy.intermediate_size": 64,
    "policy.num_layers": 1,
    "policy.demonstration_turns": 60,
    "policy.warm_start_steps": 4,
    "rollout.num_groups": 2,
    "rollout.group_size": 2,
    "rollout.shard_groups": 2,
    "rollout.max_response_tokens": 128,
    "evaluation.num_prompts": 4,
}


@pytest.mark.parametrize(
    ("name", "changed", "said", "executed"),
    [
        ("countdown", {}, "<answer> 1 +  2</answer>", "1 + 2"),
        ("metamath-qa", {}, "<answer> 3 apples </answer>", "3 apples"),
        (
            "search-qa",
            {"environment.actions": "tools", "rollout.max_context_tokens": 400},
            '<tool_call>{"name":"search", "arguments": {"query":"a lake"}}</tool_call>',
            '{"arguments": {"query": "a lake"}, "name": "search"}',
        ),
    ],
    ids=["expression", "text", "tool calls"],
)
def test_a_rollout_of_free_answers_is_stored_and_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, changed: dict[str, object], said: str, executed: str
) -> None:
    if name == "search-qa":
        pytest.importorskip("bm25s", reason="bm25s is not installed (pip install 'starpo[webshop]')")
    config = preset(name, {**SMALL, **changed})
    store = Store(str(tmp_path))
    begun = warm_start(config).carry_out(store)["checkpoint"]
    assert store.manifest("checkpoint", begun).headline["demonstration_success"] > 0
    tokenizer = find_tokenizer(store, [begun])
    ids = [*tokenizer.encode(f"<think>so</think>{said}", add_special_tokens=False), tokenizer.eos_token_id]
    answer = Response(ids, [-1.0] * len(ids), "stop")
    monkeypatch.setattr(TorchSession, "generate", lambda session, requests: [answer for _ in requests])
    played = rollout(0, config, begun).carry_out(store)
    rows = store.read_table("turns", played["turns"]).to_pylist()
    paid = store.read_table("rewards", reward(config.reward, **played).carry_out(store)["rewards"])
    assert len(paid) == len(rows) >= 4
    assert {row["status"] for row in rows} == {"ok"}
    assert {tuple(row["executed_actions"]) for row in rows} == {(executed,)}
