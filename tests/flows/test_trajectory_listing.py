"""A trajectory in a terminal: its turns and, on request, the model's prompts."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from starpo.flows.console.trajectory import _ending, print_trajectory
from starpo.flows.presets import preset
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.datasets import DATASETS
from starpo.schemas.manifest import Stage
from tests.examples import example, put_folder

STAGE = Stage(name="rollout", version=1)
TOKENIZER = make_tokenizer()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Store with one rollout in full contexts, and the run's tokenizer."""
    store = Store(str(tmp_path / "store"))
    TOKENIZER.save_pretrained(tmp_path / "policy")
    facts = Facts(key=stage_key(STAGE, {}, {}, 0), stage=STAGE, settings={}, inputs={}, seed=0)
    store.put_table("turns", example("turns"), facts)
    put_folder(store, "checkpoint", str(tmp_path / "policy"), facts)
    store.runs.create("mine", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    store.runs.record_stage("mine", 0, "rollout", {"turns": facts.key})
    store.runs.record_stage("mine", 0, "warm_start", {"checkpoint": facts.key})
    return store


def turns() -> list[dict]:
    rows = example("turns").to_pylist()
    return [row for row in rows if row["trajectory_id"] == rows[0]["trajectory_id"]]


def shown(store: Store, capsys: pytest.CaptureFixture[str], *, should_show_prompts=False, as_json=False) -> str:
    name = turns()[0]["trajectory_id"]
    print_trajectory(store, "mine", 0, name, should_show_prompts=should_show_prompts, as_json=as_json)
    return capsys.readouterr().out


def test_prompts_are_folded_to_their_size(store, capsys):
    text = shown(store, capsys)
    first, second = turns()[:2]
    assert f"context      {len(first['prompt_ids'])} tokens, all that the model saw" in text
    before = len(first["prompt_ids"]) + len(first["response_ids"])
    assert f"context      {len(second['prompt_ids'])} tokens, after {before} since turn 0" in text
    assert "--prompts shows the model's prompts" in text
    assert "\nuser " not in text


def test_requested_prompts_shown_by_role(store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    text = shown(store, capsys, should_show_prompts=True)
    rows = turns()
    assert text.count("\nprompt  ") == 1  # the example's first prompt is not in a chat template
    assert text.count("\nuser  ") == len(rows) - 1
    for row in rows:
        prompt = TOKENIZER.decode(row["prompt_ids"])
        for word in (word for word in prompt.split() if word.isprintable()):
            assert word in text


def test_json_turn_has_prompt_messages(store, capsys):
    rows = json.loads(shown(store, capsys, as_json=True))
    assert [message["text"] for row in rows for message in row["prompt"]] == [
        TOKENIZER.decode(row["prompt_ids"]) for row in turns()
    ]
    assert [row["response"] for row in rows] == [row["response"] for row in turns()]


def test_missing_tokenizer_is_reported(store, capsys):
    store.drop("checkpoint", stage_key(STAGE, {}, {}, 0))
    assert "no checkpoint with the run's tokenizer" in shown(store, capsys, should_show_prompts=True)
    assert {row["prompt"] for row in json.loads(shown(store, capsys, as_json=True))} == {None}


def test_turn_reward_shown_by_component(store, capsys):
    assert {row["reward"] for row in json.loads(shown(store, capsys, as_json=True))} == {None}  # not computed yet
    assert "return" not in shown(store, capsys)
    rows = example("rewards").to_pylist()
    first = next(row for row in rows if (row["trajectory_id"], row["turn"]) == (turns()[0]["trajectory_id"], 0))
    first |= {"component_names": ["environment", "format"], "component_values": [-0.25, -1.0], "total": -1.25}
    for row in rows:
        if row["trajectory_id"] == first["trajectory_id"]:
            row["trajectory_return"] = first["total"] + 4 * -0.2
    stage = Stage(name="reward", version=1)
    facts = Facts(key=stage_key(stage, {}, {}, 0), stage=stage, settings={}, inputs={}, seed=0)
    store.put_table("rewards", pa.Table.from_pylist(rows, schema=DATASETS["rewards"].schema), facts)
    store.runs.record_stage("mine", 0, "reward", {"rewards": facts.key})
    text = shown(store, capsys)
    assert "reward       -1.25 (environment -0.25, format -1)" in text
    assert "goal reached; return -2.05" in text
    assert json.loads(shown(store, capsys, as_json=True))[0]["reward"] == {"environment": -0.25, "format": -1.0}


@pytest.mark.parametrize(
    ("facts", "ending"),
    [
        ({"truncated": True, "actions_left": 3, "forfeited_actions": 1}, "goal not reached: no action was left"),
        ({"truncated": True, "actions_left": 4, "forfeited_actions": 1}, "goal not reached: a limit of turns, context"),
        ({"terminated": True, "actions_left": 3}, "goal not reached: the environment ended the episode"),
        ({"success": True, "terminated": True}, "goal reached"),
    ],
)
def test_end_of_episode_is_explained(facts, ending):
    last = turns()[-1] | {"success": False, "terminated": False, "truncated": False, **facts}
    assert _ending(last | {"executed_actions": ["Up", "Left"]}).startswith(ending)
