import pytest

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.envs import make
from starpo.ragen.evidence.report.boards import read_settings, replay_frames


def played(config: dict, actions: list[list[str]], seed: int = 3, dynamics_seed: int = 9) -> list[dict]:
    """Turns as stored, played in an environment with these settings."""
    environment = make(read_settings(config))
    environment.reset(seed=seed, dynamics_seed=dynamics_seed)
    first = environment.state_digest()
    turns = []
    for executed in actions:
        for action in executed:
            environment.step(action)
        turns.append(
            {
                "env_seed": seed,
                "dynamics_seed": dynamics_seed,
                "origin": "policy",
                "initial_state_digest": first,
                "executed_actions": executed,
                "state_digest": environment.state_digest(),
            }
        )
    return turns


SOKOBAN = {"type": "sokoban", "observation": "compact", "generator": "distance", "vocabulary": "new"}


def test_compact_sokoban_drawn_with_default_symbols() -> None:
    frames = replay_frames(read_settings(SOKOBAN), played(SOKOBAN, [["Up", "Left"], []]))
    assert [len(turn) for turn in frames] == [3, 1]
    text = frames[0][0]["text"]
    assert frames[0][0]["kind"] == "sokoban"
    assert set(text) <= set("#_OXP√S\n")
    assert len(text.splitlines()) == 6
    assert frames[1][0] == frames[0][-1]  # the next turn begins where this one ended


def test_slips_follow_trajectory_seed() -> None:
    lake = {"type": "frozen_lake", "observation": "compact", "slip": 2 / 3}
    turns = played(lake, [["Right"]], dynamics_seed=1)
    assert replay_frames(read_settings(lake), turns) is not None
    others = [replay_frames(read_settings(lake), [turns[0] | {"dynamics_seed": seed}]) for seed in range(2, 30)]
    assert None in others  # another slip leads to another state, and is never shown instead


def test_searched_turn_slips_by_own_seed() -> None:
    lake = {"type": "frozen_lake", "observation": "compact", "slip": 2 / 3}
    settings = read_settings(lake)
    by_seed = [played(lake, [["Right"]], dynamics_seed=seed)[0] for seed in range(30)]
    chosen = [row | {"origin": "search", "dynamics_seed": 29 - seed} for seed, row in enumerate(by_seed)]
    assert all(replay_frames(settings, [row]) is not None for row in by_seed)
    assert None in [replay_frames(settings, [row]) for row in chosen]
    environment = make(settings)
    environment.reset(seed=3, dynamics_seed=1)
    first = environment.state_digest()
    rows = []
    for seed in (2, 3):
        environment.reseed(seed)
        over = environment.step("Right")[2]
        turn = {"env_seed": 3, "dynamics_seed": seed, "origin": "search", "initial_state_digest": first}
        rows.append(turn | {"executed_actions": ["Right"], "state_digest": environment.state_digest()})
        assert not over
    assert replay_frames(settings, rows) is not None


def test_bandit_shows_arms_and_payment() -> None:
    bandit = {"type": "bandit"}
    environment = make(read_settings(bandit))
    environment.reset(seed=3)
    arm = environment.actions[0]
    before, after = replay_frames(read_settings(bandit), played(bandit, [[arm]]))[0]
    assert before == {"kind": "arms", "arms": list(environment.actions), "pulled": None, "paid": None}
    assert after["pulled"] == arm
    assert after["paid"] in (0.0, 0.15, 1.0)


@pytest.mark.parametrize(
    "change",
    [{"initial_state_digest": "0" * 16}, {"state_digest": "0" * 16}, {"executed_actions": ["Fly"]}, {"env_seed": 4}],
)
def test_unrepeatable_environment_is_not_drawn(change: dict) -> None:
    turns = played(SOKOBAN, [["Up"]])
    assert replay_frames(read_settings(SOKOBAN), [turns[0] | change]) is None


def test_unavailable_environment_is_not_drawn() -> None:
    settings = {"type": "webshop", "folder": "/no/such/folder", "digest": "0" * 16}
    with pytest.raises(StarPOError):
        make(read_settings(settings))
    turns = played(SOKOBAN, [["Up"]])
    assert replay_frames(read_settings(settings), turns) is None
