"""Token ids given to the learner are those that were played, put end to end by a plain loop."""

import pytest

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.learners.trajectories import assemble
from starpo.ragen.learning.reward.compute import compute_rewards

SOKOBAN = SokobanSettings(generator="distance", min_solution=1, max_solution=3)
NOTHING_DROPPED = FilterConfig(strategy="none", should_drop_zero_variance=False)


def contexts(rows: list[dict]) -> list[dict[str, list]]:
    """Return what was seen from each context start to the last response in it, leaving out contexts without one."""
    found: list[dict[str, list]] = []
    for number, row in enumerate(rows):
        if number == 0 or row["is_context_start"]:
            found.append({"token_ids": [], "response_mask": [], "behaviour_logprobs": []})
        prompt, response = row["prompt_ids"], row["response_ids"]
        found[-1]["token_ids"] += prompt + response
        found[-1]["response_mask"] += [False] * len(prompt) + [True] * len(response)
        found[-1]["behaviour_logprobs"] += [0.0] * len(prompt) + row["behaviour_logprobs"]
    for context in found:
        while context["response_mask"] and not context["response_mask"][-1]:
            for values in context.values():
                values.pop()
    return [context for context in found if context["token_ids"]]


@pytest.mark.parametrize(("context", "max_context_tokens"), [("window", 4096), ("full", 4096), ("full", 220)])
def test_the_learner_is_given_what_was_seen(play_rollout, context, max_context_tokens) -> None:
    agent = AgentConfig(prompt="state", context=context)
    turns = play_rollout(SOKOBAN, agent, max_context_tokens=max_context_tokens).turns
    assert ("truncated" in turns["status"].to_pylist()) == (max_context_tokens == 220)
    rewards = compute_rewards(turns, RewardConfig())
    played: dict[str, list[dict]] = {}
    for row in turns.to_pylist():
        played.setdefault(row["trajectory_id"], []).append(row)
    learned = assemble(turns, rewards, select_groups(turns, rewards, NOTHING_DROPPED))
    assert [trajectory.trajectory_id for trajectory in learned] == list(played)
    for trajectory in learned:
        expected = contexts(sorted(played[trajectory.trajectory_id], key=lambda row: row["turn"]))
        for seen, segment in zip(expected, trajectory.segments, strict=True):
            assert {name: getattr(segment, name).tolist() for name in seen} == seen
