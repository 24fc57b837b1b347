from starpo.ragen.agents.evaluation.episodes import fold_episodes
from starpo.ragen.agents.evaluation.summary import summarise
from starpo.schemas.datasets import EPISODES


def test_an_episode_by_hand(make_turns):
    turns = make_turns(
        [
            {
                "env_seed": 5,
                "turn": 1,
                "observation": "second",
                "response": "b",
                "response_ids": [1],
                "executed_actions": [],
                "action_rewards": [],
                "status": "format_error",
            },
            {
                "env_seed": 5,
                "turn": 0,
                "observation": "first",
                "response": "a",
                "response_ids": [1, 2, 3],
                "executed_actions": ["Up", "Left"],
                "action_rewards": [-0.5, 2.0],
                "success": True,
            },
        ]
    )
    (episode,) = fold_episodes(turns, "sokoban", 0.5).to_pylist()
    assert episode == {
        "cell": "sokoban",
        "env": "fake",
        "env_seed": 5,
        "member": 0,
        "temperature": 0.5,
        "initial_state_digest": "0" * 16,
        "num_turns": 2,
        "num_actions": 2,
        "num_response_tokens": 4,
        "num_format_errors": 1,
        "episode_return": 1.5,  # -0.5 + 2, without a format penalty
        "success": True,
        "status": "format_error",
        "observations": ["first", "second"],
        "responses": ["a", "b"],
        "actions": ["Up || Left", ""],
    }


def test_the_worst_status_counts(make_turns):
    turns = make_turns([{"turn": t, "status": s} for t, s in enumerate(["ok", "env_error", "truncated", "ok"])])
    assert fold_episodes(turns, "cell", 0.5)["status"].to_pylist() == ["env_error"]


def test_order_and_schema(make_turns):
    turns = make_turns([{"env_seed": seed, "group_id": f"p{seed}", "member": m} for seed in (9, 2) for m in (1, 0)])
    episodes = fold_episodes(turns, "cell", 0.5)
    assert episodes.schema.equals(EPISODES.schema, check_metadata=True)
    assert episodes.select(["env_seed", "member"]).to_pylist() == [
        {"env_seed": seed, "member": member} for seed in (9, 2) for member in (1, 0)
    ]


def test_no_turns_give_no_episodes(make_turns):
    episodes = fold_episodes(make_turns([]), "cell", 0.5)
    assert episodes.num_rows == 0
    assert episodes.schema.equals(EPISODES.schema)


def test_training_states_have_their_own_cell(make_turns):
    """Success of three prompts is 1, 1, 0, and training started from the first: unseen 1/2, seen 1/1."""
    turns = make_turns(
        {"env_seed": seed, "group_id": f"p{seed}", "initial_state_digest": str(seed) * 16, "success": seed < 3}
        for seed in (1, 2, 3)
    )
    episodes = fold_episodes(turns, "sokoban", 0.5, seen_digests={"1" * 16, "9" * 16})
    assert episodes["cell"].to_pylist() == ["sokoban/seen", "sokoban", "sokoban"]
    values = summarise(episodes)
    assert values["evaluation/sokoban/success"] == 0.5
    assert values["evaluation/sokoban/num_episodes"] == 2
    assert values["evaluation/sokoban/seen/success"] == 1.0
