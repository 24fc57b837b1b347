"""Episodes turn by turn: what is requested, executed and recorded, and what ends an episode."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout import loop
from starpo.ragen.agents.rollout.engine import Response
from starpo.ragen.agents.rollout.loop import Episode, play
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.core.seeding import token_uniforms
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.schemas.datasets import TURNS
from starpo.schemas.validate import validate

STATE = AgentConfig(prompt="state")
SAMPLING = SamplingConfig(max_response_tokens=60)


def say(actions: str) -> str:
    return f"<think>t</think><answer>{actions}</answer>"


def member(number: int, group: str = "g0") -> Episode:
    return Episode(group, number, env_seed=7, dynamics_seed=number, sampling_seed=100 + number)


ALONE = (member(0),)


@pytest.fixture
def played(tokenizer, corridor, scripted_engine):
    """`played(script, ...)`: rows of the episodes, checked against the contract of `turns`, and the session."""

    def run(
        script,
        *,
        agent=STATE,
        environment=None,
        episodes=ALONE,
        sampling=SAMPLING,
        max_context_tokens=4096,
        deadline_s=None,
    ):
        contexts = ContextBuilder(tokenizer, agent, sampling.max_response_tokens)
        session = scripted_engine(script).session(sampling, contexts.stop_token_ids)
        table = play(
            session,
            contexts,
            tokenizer,
            environment or corridor(),
            agent,
            sampling,
            max_context_tokens,
            episodes,
            deadline_s,
        )
        validate(table, "turns")
        return SimpleNamespace(rows=table.to_pylist(), table=table, session=session)

    return run


def test_successful_episode_fills_every_column(played, tokenizer):
    answers = [say("right"), say("Right || RIGHT || Left")]
    first, second = played(lambda _, turn: answers[turn]).rows
    end = tokenizer.eos_token_id
    chat = [tokenizer.encode(text, add_special_tokens=False) for text in ("<|im_start|>user\n", "<|im_end|>\n")]
    assert first == {
        "trajectory_id": "g0-0",
        "group_id": "g0",
        "env": "corridor",
        "env_seed": 7,
        "dynamics_seed": 0,
        "sampling_seed": 100,
        "member": 0,
        "turn": 0,
        "observation": "P 0",
        "is_context_start": True,
        "prompt_ids": tokenizer.encode(
            "<|im_start|>user\nP 0<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False
        ),
        "response_ids": [*tokenizer.encode(answers[0], add_special_tokens=False), end],
        "behaviour_logprobs": [-0.5] * len(first["response_ids"]),
        "origin": "policy",
        "num_candidates": 1,
        "num_as_good": 1,
        "response": answers[0],
        "think": "t",
        "answer": "right",
        "parsed_actions": ["Right"],
        "executed_actions": ["Right"],
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
        "initial_state_digest": "0000000700000000",
        "state_digest": "0000000700000001",
        "info": '{"cell": 1, "effective": true}',
    }
    assert second["observation"] == "P 1"
    assert second["actions_left"] == 9
    assert not second["is_context_start"]
    assert second["prompt_ids"][: len(chat[1]) - 1] == chat[1][1:]  # the end token was sampled, its newline was not
    # The goal is cell 3, so the third action is not taken.
    assert second["parsed_actions"] == ["Right", "Right", "Left"]
    assert second["executed_actions"] == ["Right", "Right"]
    assert second["action_rewards"] == [-0.1, 0.9]
    assert (second["terminated"], second["truncated"], second["success"]) == (True, False, True)
    assert second["state_digest"] == "0000000700000003"


@pytest.mark.parametrize(
    "agent",
    [
        AgentConfig(),
        STATE,
        AgentConfig(context="window"),
        AgentConfig(context="window", window_turns=3, should_prefill_think=True),
        AgentConfig(should_think=False),
    ],
)
def test_stored_ids_equal_engine_input(played, agent):
    """With warnings, rewards and cut responses: the ids since the last context start are each request's prompt."""
    answers = [say("Left"), "nonsense", "<think>on and on...", say("Jump"), say("Left")]
    run = played(lambda _, turn: answers[turn], agent=agent.model_copy(update={"max_actions": 50}))
    assert len(run.rows) == len(run.session.requests) == 5
    context: list[int] = []
    for row, request in zip(run.rows, run.session.requests, strict=True):
        context = row["prompt_ids"] if row["is_context_start"] else context + row["prompt_ids"]
        assert context == list(request.prompt_ids)
        context = context + row["response_ids"]


def test_tokens_depend_on_seed_and_turn(played):
    run = played(lambda *_: say("Left"), episodes=[member(0), member(1)])
    for request, turn in zip(run.session.requests, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], strict=True):
        seed = 100 + int(request.sequence_id[-1])
        np.testing.assert_array_equal(request.uniforms, token_uniforms(seed, turn, 60))
    assert len({request.seed for request in run.session.requests}) == 10


def test_malformed_response_forfeits_and_continues(played):
    agent = AgentConfig(prompt="state", max_turns=5, max_actions=8, max_actions_per_turn=3)
    rows = played(lambda *_: "I would rather not.", agent=agent).rows
    # 3 + 3 + the last 2 of the 8 actions: forfeited actions count like executed ones.
    assert [row["forfeited_actions"] for row in rows] == [3, 3, 2]
    assert [row["actions_left"] for row in rows] == [8, 5, 2]
    assert [row["status"] for row in rows] == ["format_error"] * 3
    assert [row["truncated"] for row in rows] == [False, False, True]
    assert all(row["executed_actions"] == [] and row["info"] == "{}" and not row["format_ok"] for row in rows)


def test_malformed_responses_can_use_all_turns(played):
    agent = AgentConfig(
        prompt="state", max_turns=3, max_actions=8, max_actions_per_turn=3, should_malformed_use_actions=False
    )
    answers = ["I would rather not.", say("Right"), "Nor now."]
    run = played(lambda _, turn: answers[turn], agent=agent)
    assert [row["forfeited_actions"] for row in run.rows] == [0, 0, 0]
    assert [row["actions_left"] for row in run.rows] == [8, 8, 7]
    assert [row["status"] for row in run.rows] == ["format_error", "ok", "format_error"]
    assert [row["truncated"] for row in run.rows] == [False, False, True]  # the turns are used up
    rewards = compute_rewards(run.table, RewardConfig(format_penalty=-0.1)).to_pylist()
    paid = [dict(zip(row["component_names"], row["component_values"], strict=True)) for row in rewards]
    assert [row["forfeit"] for row in paid] == [0, 0, 0]  # no action was forfeited, so there is no cost
    assert [row["total"] for row in rewards] == pytest.approx([-0.1, -0.1, -0.1])  # penalty, step, penalty


def test_known_prefix_played_nothing_forfeited(played):
    row = played(lambda *_: say("Right || Jump || Right"), agent=AgentConfig(prompt="state", max_turns=1)).rows[0]
    assert row["executed_actions"] == ["Right"]
    assert row["parsed_actions"] == ["Right", "Jump", "Right"]
    assert (row["status"], row["format_ok"], row["forfeited_actions"]) == ("format_error", False, 0)


def test_next_prompt_warns_and_shows_reward(played, tokenizer):
    answers = [say("Right || Jump"), say("Left")]
    agent = AgentConfig(max_turns=2)
    run = played(lambda _, turn: answers[turn], agent=agent, sampling=SamplingConfig(max_response_tokens=60))
    prompt = tokenizer.decode(run.rows[1]["prompt_ids"])
    assert "Reward: -0.1\n\nTurn 2:\nState:\nP 1\nYour last response was invalid" in prompt
    assert "You have 9 actions left." in prompt


def test_unfinished_response_is_always_malformed(played):
    row = played(lambda *_: say("Right") + "...", agent=AgentConfig(prompt="state", max_turns=1)).rows[0]
    assert (row["finish_reason"], row["status"], row["format_ok"]) == ("length", "format_error", False)
    assert row["response"] == say("Right")


def test_limits_of_actions_and_turns(played):
    agent = AgentConfig(prompt="state", max_turns=3, max_actions=5, max_actions_per_turn=2)
    left = " || ".join(["Left"] * 4)
    rows = played(lambda *_: say(left), agent=agent).rows
    assert [len(row["executed_actions"]) for row in rows] == [2, 2, 1]  # 2 per turn, 5 in all
    assert [len(row["parsed_actions"]) for row in rows] == [4, 4, 4]
    assert [row["status"] for row in rows] == ["ok"] * 3
    rows = played(lambda *_: say("Left"), agent=agent).rows
    assert [row["truncated"] for row in rows] == [False, False, True]  # 3 turns


def test_truncated_means_limit_not_failure(played):
    """Reaching the goal with the last action of the last turn: terminated and successful, not truncated."""
    agent = AgentConfig(prompt="state", max_turns=1, max_actions=3)
    row = played(lambda *_: say("Right || Right || Right"), agent=agent).rows[0]
    assert (row["terminated"], row["truncated"], row["success"]) == (True, False, True)


def test_full_context_ends_episode_losslessly(played):
    """The reference implementation shortened the history instead, so that early turns lost their rewards."""
    answers = {"g0-0": say("Left"), "g0-1": "x" * 50}
    agent = AgentConfig(prompt="state", max_actions=50)
    run = played(lambda name, _: answers[name], agent=agent, episodes=[member(0), member(1)], max_context_tokens=190)
    short, long = ([row for row in run.rows if row["member"] == number] for number in (0, 1))
    assert [row["status"] for row in short] == ["ok"] * 5
    # The first prompt has 10 tokens, a later one adds 11, and a response has 51, its end token included. The third
    # context would be 10 + 51 + 11 + 51 + 11 = 134 tokens, and 194 with a response of the maximum length.
    assert [row["status"] for row in long] == ["format_error", "format_error", "truncated"]
    last = long[-1]
    assert (last["truncated"], last["finish_reason"], last["response_ids"], last["prompt_ids"]) == (
        True,
        "none",
        [],
        [],
    )
    assert "194 tokens needed, max_context_tokens = 190" in json.loads(last["info"])["error"]
    assert max(len(request.prompt_ids) for request in run.session.requests) + 60 <= 190


def test_failing_environment_is_data_without_reward(played, corridor):
    run = played(
        lambda name, _: say("Right || Right") if name == "g0-1" else say("Right || Left"),
        environment=corridor(fault="step"),
        agent=AgentConfig(prompt="state", max_turns=2),
        episodes=[member(0), member(1)],
    )
    healthy, failed = run.rows[:2], run.rows[2:]
    assert [row["status"] for row in healthy] == ["ok", "ok"]
    assert len(failed) == 1
    assert failed[0]["status"] == "env_error"
    assert failed[0]["executed_actions"] == ["Right"]  # earlier actions are kept
    assert failed[0]["action_rewards"] == [-0.1]
    assert (failed[0]["terminated"], failed[0]["truncated"], failed[0]["success"]) == (False, False, False)
    error = json.loads(failed[0]["info"])
    assert (error["error"], error["message"]) == ("RuntimeError", "the floor gave way")
    assert error["where"].startswith("step:")


def test_failed_reset_ends_first_row(played, corridor):
    rows = played(lambda *_: say("Right"), environment=corridor(fault="reset")).rows
    assert len(rows) == 1
    assert (rows[0]["status"], rows[0]["turn"], rows[0]["response_ids"]) == ("env_error", 0, [])
    assert json.loads(rows[0]["info"])["message"] == "no corridor today"


def test_failed_reset_keeps_group_whole(played, corridor):
    rows = played(
        lambda *_: say("Right || Right || Right"),
        environment=corridor(fault="first_reset"),
        episodes=[member(0), member(1)],
    ).rows
    assert [row["status"] for row in rows] == ["env_error", "ok"]
    assert {row["initial_state_digest"] for row in rows} == {"0000000700000000"}


def test_lone_surrogate_is_environment_fault(played, corridor):
    for fault in ("half_reset", "half_step"):
        rows = played(lambda *_: say("Right"), environment=corridor(fault=fault)).rows
        assert [row["status"] for row in rows][-1] == "env_error"
        assert json.loads(rows[-1]["info"])["error"] == "UnicodeEncodeError"


def test_step_without_effect_is_environment_fault(played, corridor):
    row = played(lambda *_: say("Right"), environment=corridor(fault="info")).rows[0]
    assert row["status"] == "env_error"
    assert json.loads(row["info"])["error"] == "KeyError"


@pytest.mark.parametrize(("fault", "error"), [("unpaid", "TypeError"), ("nan", "EnvironmentFault")])
def test_non_numeric_reward_is_environment_fault(played, corridor, fault, error):
    row = played(lambda *_: say("Right || Right"), environment=corridor(fault=fault)).rows[0]
    assert (row["status"], row["executed_actions"], row["action_rewards"]) == ("env_error", ["Right"], [-0.1])
    assert json.loads(row["info"])["error"] == error


def test_deadline_ends_living_episodes_with_timeout(played, monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    def script(name: str, turn: int) -> str:
        now_s[0] += 1.0
        return say("Right || Right || Right") if name == "g0-0" else say("Left")

    rows = played(script, episodes=[member(0), member(1)], deadline_s=1.5).rows
    assert [(row["member"], row["status"]) for row in rows] == [(0, "ok"), (1, "ok"), (1, "timeout")]
    assert rows[-1]["truncated"]
    assert json.loads(rows[-1]["info"])["error"] == "the shard's deadline has passed (rollout.deadline_s)"


def test_ids_stored_as_sampled_with_specials(tokenizer, corridor):
    """The reference implementation rewrote responses when parsing them, and trained on the rewritten ones."""
    parts = ["<think>", "t", "</think>", "<|im_start|>", "<answer>", "Ri", "ght", "</answer>"]
    ids = [*(id_ for part in parts for id_ in tokenizer.encode(part)), tokenizer.eos_token_id]
    assert ids[:-1] != tokenizer.encode("".join(parts))
    session = SimpleNamespace(generate=lambda _: [Response(ids, [-0.5] * len(ids), "stop")], close=lambda: None)
    agent = AgentConfig(prompt="state", max_turns=1)
    rows = play(session, ContextBuilder(tokenizer, agent, 60), tokenizer, corridor(), agent, SAMPLING, 4096, ALONE)
    (row,) = rows.to_pylist()
    assert (row["response_ids"], row["response"], row["status"]) == (ids, "".join(parts), "format_error")


def test_rows_follow_episode_order(played):
    turns = {"g0-0": 3, "g0-1": 1, "g0-2": 2}
    rows = played(
        lambda name, turn: say("Right || Right || Right") if turn + 1 == turns[name] else say("Left"),
        episodes=[member(n) for n in range(3)],
    ).rows
    assert [(row["member"], row["turn"]) for row in rows] == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1)]


def test_no_episodes_give_no_rows(played):
    assert played(lambda *_: "", episodes=[]).table.equals(TURNS.schema.empty_table())


def test_protocol_breaking_engine_is_named(tokenizer, corridor):
    contexts = ContextBuilder(tokenizer, STATE, 60)
    for responses, message in [
        ([], "0 responses to 1 requests"),
        ([Response([1, 2], [-0.5], "length")], "1 log-probs for 2 tokens of g0-0"),
    ]:
        session = SimpleNamespace(generate=lambda _, responses=responses: responses, close=lambda: None)
        with pytest.raises(EngineError, match=message):
            play(session, contexts, tokenizer, corridor(), STATE, SAMPLING, 4096, [member(0)])


WORDS = st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", " || ", "Left", "right", "Jump", "<|im_end|>"])


@pytest.mark.ci
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    texts=st.lists(st.lists(WORDS, max_size=7).map("".join), min_size=10, max_size=10),
    context=st.sampled_from(["full", "window"]),
    max_context_tokens=st.integers(80, 400),
    uses_actions=st.booleans(),
)
def test_any_responses_keep_table_contract(played, texts, context, max_context_tokens, uses_actions):
    """`played` validates the table; in addition, used actions never exceed the limit, and every episode ends."""
    agent = AgentConfig(prompt="state", context=context, should_malformed_use_actions=uses_actions)
    rows = played(
        lambda name, turn: texts[5 * int(name[-1]) + turn],
        agent=agent,
        episodes=[member(0), member(1)],
        max_context_tokens=max_context_tokens,
    ).rows
    for number in (0, 1):
        mine = [row for row in rows if row["member"] == number]
        assert sum(len(row["executed_actions"]) + row["forfeited_actions"] for row in mine) <= agent.max_actions
        assert mine[-1]["terminated"] != mine[-1]["truncated"]
