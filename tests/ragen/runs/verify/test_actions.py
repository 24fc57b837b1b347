"""Actions executed again: real episodes are reproduced in every environment, and any changed value is found."""

import pytest

from starpo.ragen.agents.evaluation.episodes import fold_episodes
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.game_2048.environment import Game2048Settings
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.envs.sudoku.environment import SudokuSettings
from starpo.ragen.runs.verify.actions import episode_differences, turn_differences
from starpo.schemas.datasets import EPISODES

SOKOBAN = SokobanSettings(generator="distance", min_solution=1, max_solution=3)
ENVIRONMENTS = {
    "bandit": BanditSettings(),
    "lake with slips": FrozenLakeSettings(),
    "sokoban": SOKOBAN,
    "2048": Game2048Settings(goal=8),
    "sudoku": SudokuSettings(num_blanks=2),
}


@pytest.fixture(scope="module")
def played(play_rollout):
    return play_rollout(SOKOBAN)


def first_row(table, condition) -> int:
    return next(number for number, row in enumerate(table.to_pylist()) if condition(row))


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_what_was_played_comes_out_again(play_rollout, name):
    rollout = play_rollout(ENVIRONMENTS[name])
    assert set(rollout.turns["status"].to_pylist()) >= {"ok", "format_error"}
    assert list(turn_differences(rollout.turns, rollout.settings, rollout.agent)) == []


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_evaluated_episodes_come_out_again(play_rollout, name):
    rollout = play_rollout(ENVIRONMENTS[name])
    episodes = fold_episodes(rollout.turns, "cell", 0.5)
    assert list(episode_differences(episodes, rollout.settings)) == []


def test_rows_may_be_in_any_order(played):
    shuffled = played.turns.take(list(range(played.turns.num_rows))[::-1])
    assert list(turn_differences(shuffled, played.settings, played.agent)) == []


def test_full_context_is_an_end(play_rollout):
    rollout = play_rollout(SOKOBAN, AgentConfig(prompt="state", context="full"), max_context_tokens=220)
    assert "truncated" in rollout.turns["status"].to_pylist()
    assert list(turn_differences(rollout.turns, rollout.settings, rollout.agent)) == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("observation", "#####"),
        ("action_rewards", [-0.1000000001]),
        ("action_effective", [None]),
        ("terminated", None),
        ("truncated", None),
        ("success", None),
        ("actions_left", 99),
        ("action_cost", -0.0),
        ("forfeited_actions", 1),
        ("initial_state_digest", "0" * 16),
        ("state_digest", "0" * 16),
        ("info", "{}"),
        ("executed_actions", []),
        ("turn", 7),
    ],
)
def test_any_changed_value_is_found(played, column, value):
    row = first_row(played.turns, lambda r: r["turn"] == 0 and len(r["executed_actions"]) == 1 and not r["terminated"])
    old = played.turns[column][row].as_py()
    if value in (None, [None]):  # flip a flag
        value = [not old[0]] if isinstance(old, list) else not old
    differences = list(turn_differences(played.changed(row, **{column: value}), played.settings, played.agent))
    assert len(differences) == 1
    assert repr(played.turns["trajectory_id"][row].as_py()) in differences[0]


def test_difference_names_place_and_values(played):
    row = first_row(played.turns, lambda r: r["turn"] == 1 and r["executed_actions"])
    turns = played.changed(row, state_digest="f" * 16)
    identifier, digest = (played.turns[name][row].as_py() for name in ("trajectory_id", "state_digest"))
    assert list(turn_differences(turns, played.settings, played.agent)) == [
        f"trajectory '{identifier}', turn 1: state_digest is '{'f' * 16}', executed again '{digest}'"
    ]


def test_a_missing_last_turn_is_found(played):
    last = played.turns.num_rows - 1
    differences = list(turn_differences(played.turns.slice(0, last), played.settings, played.agent))
    assert len(differences) == 1
    assert "has no end" in differences[0] or "truncated" in differences[0]


def test_unknown_action_is_a_finding(played):
    row = first_row(played.turns, lambda r: len(r["executed_actions"]) == 1)
    turns = played.changed(row, executed_actions=["\x1b[31mFly"])
    [difference] = turn_differences(turns, played.settings, played.agent)
    assert "now fails" in difference
    assert "\x1b" not in difference


def test_other_environment_differs(played):
    other = SOKOBAN.model_copy(update={"vocabulary": "new"})
    assert len(list(turn_differences(played.turns, other, played.agent))) == 12


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("episode_return", 3.0000001),
        ("success", None),
        ("num_actions", 99),
        ("num_turns", 99),
        ("observations", ["x"]),
        ("initial_state_digest", "0" * 16),
        ("actions", []),
    ],
)
def test_any_changed_episode_is_found(played, column, value):
    import pyarrow as pa

    rows = fold_episodes(played.turns, "cell", 0.5).to_pylist()
    rows[2][column] = not rows[2][column] if value is None else value
    episodes = pa.Table.from_pylist(rows, schema=EPISODES.schema)
    [difference] = episode_differences(episodes, played.settings)
    assert f"prompt {rows[2]['env_seed']}, member {rows[2]['member']}" in difference
