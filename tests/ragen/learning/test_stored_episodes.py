"""Which stored episodes are imitated, and what of them."""

import pytest

from starpo.ragen.config.policy import FineTuning
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.learning.stored_episodes import choose_episodes
from tests.ragen.learning.learners.test_trajectories import rewards_of, selection_of, turn

RUNS = ["base:0"]


@pytest.fixture
def rollout(make_turns):
    """Four episodes in two groups: a-0 succeeds in its second turn, a-1 fails, b-0 succeeds, b-1 ended in an error.

    Returns are 3, 1, 2 and 9; the filter kept group a.
    """
    turns = make_turns(
        [
            turn(0, 0, [1, 2], [7], starts=True, group="a") | {"initial_state_digest": "a" * 16, "success": False},
            turn(0, 1, [3], [8, 9], starts=False, group="a") | {"initial_state_digest": "a" * 16, "success": True},
            turn(1, 0, [1, 2], [6], starts=True, group="a") | {"initial_state_digest": "a" * 16, "success": False},
            turn(0, 0, [1, 4], [5], starts=True, group="b") | {"initial_state_digest": "b" * 16, "success": True},
            turn(1, 0, [1, 4], [4], starts=True, group="b") | {"initial_state_digest": "b" * 16, "success": True},
        ]
    )
    rewards = rewards_of(turns, [1.0, 2.0, 1.0, 2.0, 9.0], invalid=("b-1",))
    return turns, rewards, selection_of({"a": True, "b": False})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [[1, 2, 7, 3, 8, 9], [1, 4, 5]]),
        ({"episodes": "kept"}, [[1, 2, 7, 3, 8, 9], [1, 2, 6]]),
        ({"episodes": "all"}, [[1, 2, 7, 3, 8, 9], [1, 2, 6], [1, 4, 5]]),
        ({"episodes": "all", "min_return": 2.0}, [[1, 2, 7, 3, 8, 9], [1, 4, 5]]),
        ({"min_return": 2.5}, [[1, 2, 7, 3, 8, 9]]),
    ],
)
def test_choice_by_success_filter_and_return(rollout, settings: dict, expected: list[list[int]]) -> None:
    chosen = choose_episodes([rollout], FineTuning(runs=RUNS, **settings), frozenset())
    assert [example.token_ids.tolist() for example in chosen.examples] == expected


def test_only_episode_responses_are_learned(rollout) -> None:
    chosen = choose_episodes([rollout], FineTuning(runs=RUNS), frozenset())
    assert chosen.examples[0].response_mask.tolist() == [False, False, True, False, True, True]
    assert chosen.num_turns == 3
    assert chosen.successes == [True, True]
    assert sorted(chosen.initial_states) == ["a" * 16, "b" * 16]
    assert chosen.num_excluded == 0


def test_panel_episodes_omitted_and_counted(rollout) -> None:
    config = FineTuning(runs=RUNS, episodes="all")
    chosen = choose_episodes([rollout], config, frozenset({"a" * 16, "c" * 16}))
    assert [example.token_ids.tolist() for example in chosen.examples] == [[1, 4, 5]]
    assert chosen.initial_states == ["b" * 16]
    assert chosen.num_excluded == 2


def test_rollouts_with_equal_names_stay_separate(rollout) -> None:
    twice = choose_episodes([rollout, rollout], FineTuning(runs=RUNS), frozenset())
    assert len(twice.examples) == 4
    assert twice.num_turns == 6


def test_empty_choice_lists_available_episodes(rollout) -> None:
    with pytest.raises(ConfigError, match=r"none of 3 stored episodes .* that succeeds with a return of at least 4"):
        choose_episodes([rollout], FineTuning(runs=RUNS, min_return=4), frozenset())
    with pytest.raises(ConfigError, match=r"of those that qualify, 2 begin on a panel"):
        choose_episodes([rollout], FineTuning(runs=RUNS), frozenset({"a" * 16, "b" * 16}))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"runs": ["base"]}, "runs"),
        ({"runs": ["base:4-2"]}, "ends before it begins"),
        ({"min_return": 1.0}, "name their runs"),
        ({"episodes": "kept"}, "name their runs"),
    ],
)
def test_settings_naming_no_episodes_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FineTuning(**settings)
