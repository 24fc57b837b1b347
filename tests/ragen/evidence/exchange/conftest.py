"""Runs with real prompts, tokenised by the context builder, and scripted responses."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.parser import prefilled_tag
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.datasets import TURNS
from starpo.schemas.manifest import Stage
from tests.examples import put_folder
from tests.ragen.agents.prompting.conftest import Words
from tests.ragen.conftest import DEFAULT_TURN

TOKENIZER = make_tokenizer()
SMOKE = preset("smoke")
RETURNS = ((1.0, -0.5, -0.5, 0.25), (-0.5, -0.5, -0.5, -0.5))
"""Returns of the members of each group; a positive return is a success."""


def played_turns(agent: AgentConfig, returns: Sequence[Sequence[float]] = RETURNS, num_turns: int = 3) -> pa.Table:
    """Trajectories as a rollout stores them; only the last turn is rewarded."""
    contexts = ContextBuilder(TOKENIZER, agent, 40)
    opening = prefilled_tag(agent)
    rows: list[dict[str, Any]] = []
    for group, members in enumerate(returns):
        for member, paid in enumerate(members):
            context = contexts.start(Words())
            for turn in range(num_turns):
                observation = f"P _ O {group}"
                added = context.observe(
                    observation, actions_left=9 - turn, reward=0.0 if turn else None, had_invalid_action=False
                )
                think = f"the box is {['above', 'below', 'left', 'right'][member]}"
                response = f"<think>{think}</think><answer>Up</answer>".removeprefix(opening)
                ids = [*TOKENIZER.encode(response, add_special_tokens=False), contexts.stop_token_ids[0]]
                context.respond(ids)
                is_last = turn == num_turns - 1
                rows.append(
                    DEFAULT_TURN
                    | {
                        "trajectory_id": f"g{group}/{member:04d}",
                        "group_id": f"g{group}",
                        "env": "sokoban",
                        "env_seed": 7 + group,
                        "member": member,
                        "turn": turn,
                        "observation": observation,
                        "is_context_start": added.is_context_start,
                        "prompt_ids": added.prompt_ids,
                        "response_ids": ids,
                        "behaviour_logprobs": [-0.1 * (place % 7) - 0.01 for place in range(len(ids))],
                        "response": response,
                        "think": think,
                        "action_rewards": [paid if is_last else 0.0],
                        "actions_left": 9 - turn,
                        "initial_state_digest": f"{group:016x}",
                        "state_digest": f"{turn:016x}",
                        "terminated": is_last and paid > 0,
                        "truncated": is_last and paid <= 0,
                        "success": is_last and paid > 0,
                    }
                )
    return pa.Table.from_pylist(rows, schema=TURNS.schema)


@pytest.fixture
def put_run(store: Store, tmp_path: Path) -> Callable[..., pa.Table]:
    """`put_run(name, agent, turns=None)`: store a run of one iteration with its tokenizer, return its turns."""

    def put(name: str = "mine", agent: AgentConfig = SMOKE.agent, turns: pa.Table | None = None) -> pa.Table:
        table = played_turns(agent) if turns is None else turns
        config = SMOKE.model_copy(update={"agent": agent})
        folder = tmp_path / f"policy-{name}"
        TOKENIZER.save_pretrained(folder)
        rewards = compute_rewards(table, SMOKE.reward)
        made = {"turns": table, "rewards": rewards, "selection": select_groups(table, rewards, SMOKE.filter)}
        stages = {"turns": "rollout", "rewards": "reward", "selection": "variance_filter"}
        store.runs.create(name, flow="starpo", preset="smoke", config=config.model_dump(mode="json"))
        for kind, stage in stages.items():
            facts = _facts(stage, name)
            store.put_table(kind, made[kind], facts)
            store.runs.record_stage(name, 0, stage, {kind: facts.key})
        facts = _facts("warm_start", name)
        put_folder(store, "checkpoint", str(folder), facts)
        store.runs.record_stage(name, 0, "warm_start", {"checkpoint": facts.key})
        store.runs.set_state(name, "completed", "completed")
        return table

    return put


def _facts(name: str, run: str) -> Facts:
    stage = Stage(name=name, version=1)
    settings = {"run": run}
    key = stage_key(stage, settings, {}, 0)
    return Facts(key=key, stage=stage, settings=settings, inputs={}, seed=0)
