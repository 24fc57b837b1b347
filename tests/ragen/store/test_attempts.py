"""Attempts of an iteration are distinguished by the names of their stages."""

from starpo.ragen.store.attempts import attempts


def test_each_attempt_has_its_own_rollout_rewards_and_selection() -> None:
    stages = {
        "warm_start": {"checkpoint": "w"}, "rollout": {"turns": "t"}, "reward": {"rewards": "r"},
        "variance_filter": {"selection": "s"}, "rollout:1": {"turns": "t1"}, "reward:1": {"rewards": "r1"},
        "evaluate:sokoban": {"episodes": "e"}, "update": {"checkpoint": "u"},
    }  # fmt: skip
    first, second = attempts(stages)
    assert (first["rollout"]["turns"], first["variance_filter"]["selection"]) == ("t", "s")
    assert second == {"rollout": {"turns": "t1"}, "reward": {"rewards": "r1"}}
    assert attempts({"evaluate:sokoban": {"episodes": "e"}}) == []
