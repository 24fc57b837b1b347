"""Tokens compared with texts: real turns agree for every prompt and context format, and any changed value is found."""

import pytest

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.runs.verify.texts import text_differences

SOKOBAN = SokobanSettings(generator="distance", min_solution=1, max_solution=3)
AGENTS = {
    "state": AgentConfig(prompt="state", context="window"),
    "full": AgentConfig(prompt="full", context="full", should_show_reward=True),
    "window of two": AgentConfig(prompt="full", context="window", window_turns=2),
    "prefilled": AgentConfig(prompt="state", context="full", should_prefill_think=True),
    "without thinking": AgentConfig(prompt="state", context="window", should_think=False),
}


def differences(rollout, turns=None) -> list[str]:
    turns = rollout.turns if turns is None else turns
    return list(text_differences(turns, rollout.settings, rollout.tokenizer, rollout.contexts))


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("settings", [SOKOBAN, BanditSettings()], ids=["sokoban", "bandit"])
def test_recorded_texts_match_tokens(play_rollout, agent, settings):
    assert differences(play_rollout(settings, AGENTS[agent])) == []


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("response", lambda text: text + " "),
        ("response_ids", lambda ids: [ids[0] + 1, *ids[1:]]),
        ("prompt_ids", lambda ids: [*ids[:-1], ids[-1] + 1]),
        ("is_context_start", lambda start: not start),
        ("observation", lambda text: text + "#"),
        ("think", lambda text: text + "."),
        ("answer", lambda text: text + " || Up"),
        ("parsed_actions", lambda names: [*names, "Up"]),
        ("executed_actions", lambda names: ["Left" if names[0] != "Left" else "Up", *names[1:]]),
        ("format_ok", lambda ok: not ok),
        ("finish_reason", lambda _: "length"),
    ],
)
def test_any_changed_value_is_found(play_rollout, column, change):
    rollout = play_rollout(SOKOBAN)
    rows = rollout.turns.to_pylist()
    row = next(i for i, r in enumerate(rows) if r["format_ok"] and r["turn"] == 1)
    sentences = differences(rollout, rollout.changed(row, **{column: change(rows[row][column])}))
    assert len(sentences) == 1
    assert sentences[0].startswith(f"trajectory {rows[row]['trajectory_id']!r}, turn 1: ")


def test_control_characters_are_escaped(play_rollout):
    rollout = play_rollout(SOKOBAN)
    [difference] = differences(rollout, rollout.changed(0, response="\x1b]0;title\x07"))
    assert difference.isprintable()
