import pyarrow as pa
import pytest

from starpo.ragen.agents.evaluation.episodes import fold_episodes
from starpo.ragen.agents.evaluation.intervals import success_interval, wilson_interval
from starpo.ragen.agents.evaluation.summary import summarise, total_episodes


def _episodes(make_turns, outcomes: dict[int, list[bool]], cell: str = "lake", **columns):
    """One-turn episodes with the given outcomes of each prompt."""
    rows = [
        {"env_seed": prompt, "group_id": f"p{prompt}", "member": member, "success": success, **columns}
        for prompt, successes in outcomes.items()
        for member, success in enumerate(successes)
    ]
    return fold_episodes(make_turns(rows), cell, 0.5)


def test_one_sample_a_prompt_by_hand(make_turns):
    values = summarise(_episodes(make_turns, {0: [True], 1: [False], 2: [True], 3: [False]}))
    low, high = wilson_interval(2, 4)
    assert values == pytest.approx(
        {
            "evaluation/lake/num_episodes": 4,
            "evaluation/lake/num_errors": 0,
            "evaluation/lake/success": 0.5,
            "evaluation/lake/success_low": low,
            "evaluation/lake/success_high": high,
            "evaluation/lake/pass_at_1": 0.5,
            "evaluation/lake/return_mean": -0.1,
            "evaluation/lake/turns_mean": 1,
            "evaluation/lake/actions_mean": 1,
            "evaluation/lake/response_length_mean": 2,
            "evaluation/lake/format_ok": 1,
        }
    )


def test_several_samples_a_prompt(make_turns):
    values = summarise(_episodes(make_turns, {0: [True, True, True], 1: [True, False, False], 2: [False] * 3}))
    # pass@2: prompt 0: 1; prompt 1: 1 - C(2,2)/C(3,2) = 2/3; prompt 2: 0. Mean (1 + 2/3 + 0) / 3 = 5/9.
    assert values["evaluation/lake/success"] == pytest.approx(4 / 9)
    assert values["evaluation/lake/pass_at_1"] == pytest.approx(4 / 9)
    assert values["evaluation/lake/pass_at_2"] == pytest.approx(5 / 9)
    assert "evaluation/lake/pass_at_4" not in values  # there are three samples per prompt
    low, high = success_interval([3, 1, 0], [3, 3, 3])
    assert (values["evaluation/lake/success_low"], values["evaluation/lake/success_high"]) == (low, high)
    assert low < wilson_interval(4, 9)[0]


def test_errors_counted_not_as_failures(make_turns):
    good = _episodes(make_turns, {0: [True], 1: [False]})
    bad = _episodes(make_turns, {2: [False], 3: [False]}, status="timeout")
    values = summarise(pa.concat_tables([good, bad]))
    assert values["evaluation/lake/success"] == 0.5
    assert (values["evaluation/lake/num_episodes"], values["evaluation/lake/num_errors"]) == (4, 2)


def test_cell_of_errors_has_counts(make_turns):
    values = summarise(_episodes(make_turns, {0: [False]}, status="env_error"))
    assert values == {"evaluation/lake/num_episodes": 1.0, "evaluation/lake/num_errors": 1.0}


def test_format_is_a_share_of_turns(make_turns):
    episodes = fold_episodes(make_turns([{"turn": 0}, {"turn": 1, "status": "format_error"}]), "lake", 0.5)
    assert summarise(episodes)["evaluation/lake/format_ok"] == 0.5


def test_mixture_parts_are_summarised(make_turns):
    mixture = [_episodes(make_turns, {seed: [seed == 0]}, env=env) for seed, env in enumerate(("easy", "hard"))]
    values = summarise(pa.concat_tables(mixture))
    successes = [values[f"evaluation/lake/{name}success"] for name in ("", "easy/", "hard/")]
    assert successes == [0.5, 1.0, 0.0]


def test_no_episodes_give_nothing(make_turns):
    assert summarise(_episodes(make_turns, {})) == {}


def test_totals_leave_out_errors(make_turns):
    episodes = _episodes(make_turns, {0: [True], 1: [False]})
    lost = _episodes(make_turns, {2: [False]}, status="env_error")
    cut = _episodes(make_turns, {3: [False]}, status="truncated")
    totals = total_episodes(pa.concat_tables([episodes, lost, cut]))
    assert totals == {
        "num_errors": 1,
        "num_episodes": 3,
        "num_truncated": 1,
        "num_turns": 3,
        "num_format_errors": 0,
        "num_response_tokens": 6,
    }
