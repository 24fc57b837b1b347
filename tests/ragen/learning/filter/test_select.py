import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.errors import DataError
from starpo.ragen.learning.filter.select import SURPLUS, select_groups
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.schemas.datasets import SELECTION
from starpo.schemas.validate import validate

STRATEGIES = ["none", "top_fraction", "top_k", "top_p_linear", "top_p_softmax", "min_p"]
METRICS = ["std", "sample_std", "mean", "sum", "entropy", "entropy_std", "length"]
# Dyadic numbers and groups of four: sums and means are exact, so properties hold to the last bit.
group_returns = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=4, max_size=4)
some_groups = st.lists(group_returns, min_size=1, max_size=8)


def _turns(make_turns, groups: dict[str, list[float]], **columns) -> pa.Table:
    """Table of one-turn trajectories with the given returns, by group."""
    rows = [
        {"group_id": group, "env_seed": index, "member": member, "action_rewards": [value], **columns}
        for index, (group, values) in enumerate(groups.items())
        for member, value in enumerate(values)
    ]
    return make_turns(rows)


def _select(turns: pa.Table, normalisation: str = "none", num_before: int = 0, **settings) -> pa.Table:
    if settings.get("strategy") == "top_k":
        settings.setdefault("keep_count", 2)
    rewards = compute_rewards(turns, RewardConfig(normalisation=normalisation))
    return select_groups(turns, rewards, FilterConfig(**settings), num_before)


def _named(groups: list[list[float]]) -> dict[str, list[float]]:
    return {f"g{index}": returns for index, returns in enumerate(groups)}


def _kept_scores(selection: pa.Table) -> list[float]:
    return sorted(row["score"] for row in selection.to_pylist() if row["kept"])


def _kept(selection: pa.Table) -> list[str]:
    return [row["group_id"] for row in selection.to_pylist() if row["kept"]]


def test_deviation_option_of_public_code(make_turns):
    """Returns 0 0 0 8: sqrt(48 / 4) and sqrt(48 / 3); the column return_std is the former for either metric."""
    turns = _turns(make_turns, {"g": [0.0, 0.0, 0.0, 8.0]})
    plain, public = (_select(turns, metric=metric).to_pylist()[0] for metric in ("std", "sample_std"))
    assert (plain["score"], public["score"]) == (pytest.approx(12**0.5), 4.0)
    assert plain["return_std"] == public["return_std"] == plain["score"]
    alone = _select(_turns(make_turns, {"g": [3.0]}), metric="sample_std", should_drop_zero_variance=False)
    assert alone["score"].to_pylist() == [0.0]


def test_statistics_of_a_group(make_turns):
    turns = make_turns(
        [
            {"member": 0, "action_rewards": [1.0], "success": True},
            {"member": 0, "turn": 1, "action_rewards": [0.0]},
            {"member": 1, "action_rewards": [-1.0]},
            {"member": 2, "action_rewards": [50.0], "status": "timeout"},
        ]
    )
    (group,) = _select(turns).to_pylist()
    assert (group["env"], group["env_seed"]) == ("fake", 7)
    assert (group["num_trajectories"], group["num_valid"]) == (3, 2)
    # The valid returns are 1 and -1: mean 0, variance (1 + 1) / 2 = 1.
    assert (group["return_mean"], group["return_std"], group["score"]) == (0.0, 1.0, 1.0)
    assert (group["return_min"], group["return_max"]) == (-1.0, 1.0)
    assert group["success_rate"] == 0.5


def test_metrics_of_responses(make_turns):
    turns = make_turns(
        [
            {"member": 0, "turn": 0, "behaviour_logprobs": [-1.0, -2.0], "action_rewards": [1.0]},
            {"member": 0, "turn": 1, "behaviour_logprobs": [-3.0]},
            {"member": 1, "turn": 0, "behaviour_logprobs": [-2.0]},
            {"member": 2, "turn": 0, "behaviour_logprobs": [-100.0] * 9, "status": "env_error"},
        ]
    )
    # Valid tokens: 4 with log-probs -1 -2 -3 -2, mean 2 nats; 3 + 1 tokens over 2 trajectories, mean 2.
    assert _select(turns, metric="entropy")["score"].to_pylist() == [2.0]
    assert _select(turns, metric="length")["score"].to_pylist() == [2.0]
    # Both trajectories have a mean of 2 nats per token, (1 + 2 + 3) / 3 and 2: no spread.
    assert _select(turns, metric="entropy_std")["score"].to_pylist() == [0.0]


def test_entropy_spread_is_over_trajectories(make_turns):
    """Means of 1 and 5 nats per token, over 7 and 2 tokens: mean 3, variance (4 + 4) / 2. No tokens: skipped."""
    turns = make_turns(
        [
            {"member": 0, "behaviour_logprobs": [-1.0] * 7, "action_rewards": [1.0]},
            {"member": 1, "behaviour_logprobs": [-4.0, -6.0]},
            {"member": 2, "behaviour_logprobs": [], "status": "truncated"},
            {"member": 3, "behaviour_logprobs": [-100.0], "status": "env_error"},
        ]
    )
    assert _select(turns, metric="entropy_std")["score"].to_pylist() == [2.0]


def test_group_scored_by_return_sum(make_turns):
    """1.5 - 0.5 - 2 = -1, without the trajectory that ended in an error; a larger sum is better."""
    rows = [{"group_id": "a", "member": n, "action_rewards": [value]} for n, value in enumerate((1.5, -0.5, -2.0))]
    failed = {"group_id": "a", "member": 3, "action_rewards": [50.0], "status": "timeout"}
    other = [{"group_id": "b", "env_seed": 8, "member": n, "action_rewards": [float(n)]} for n in range(4)]
    selection = _select(make_turns([*rows, failed, *other]), metric="sum", keep=0.5)
    assert selection["score"].to_pylist() == [-1.0, 6.0]
    assert _kept(selection) == ["b"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_turns_give_no_groups(make_turns, strategy):
    selection = _select(make_turns([]), strategy=strategy)
    assert selection.num_rows == 0
    assert selection.schema.equals(SELECTION.schema)


def test_ranks_and_reasons(make_turns):
    groups = {
        "flat": [-1.0, -1.0],
        "some": [0.0, 1.0],
        "most": [0.0, 4.0],
        "more": [0.0, 2.0],
    }
    rows = _turns(make_turns, groups).to_pylist()
    broken = {"group_id": "broken", "trajectory_id": "broken-0", "status": "env_error"}
    selection = _select(make_turns([*rows, rows[0] | broken]), keep=0.4).to_pylist()
    assert [row["group_id"] for row in selection] == ["flat", "some", "most", "more", "broken"]
    assert [row["rank"] for row in selection] == [3, 2, 0, 1, 4]
    assert [row["kept"] for row in selection] == [False, False, True, True, False]  # 40% of 5 groups = 2
    without = ", of which 1 without variance and 1 without a valid trajectory"
    assert [row["reason"] for row in selection] == [
        "dropped: zero variance, all 2 valid returns are -1",
        "dropped: number 3 of 3 by std 0.5; top_fraction with keep = 0.4 keeps 2 of 5 groups" + without,
        "kept: number 1 of 3 by std 2; top_fraction with keep = 0.4 keeps 2 of 5 groups" + without,
        "kept: number 2 of 3 by std 1; top_fraction with keep = 0.4 keeps 2 of 5 groups" + without,
        "dropped: no valid trajectory, all 1 ended in an error",
    ]


def test_keeping_the_smallest_reverses_the_order(make_turns):
    turns = _turns(make_turns, {"a": [0.0, 1.0], "b": [0.0, 4.0], "c": [0.0, 2.0]})
    selection = _select(turns, strategy="top_k", keep_count=2, should_keep_largest=False)
    assert selection["rank"].to_pylist() == [0, 2, 1]
    assert _kept(selection) == ["a", "c"]
    assert "by std 0.5 (smallest first)" in selection["reason"][0].as_py()


def test_equal_returns_favour_earlier_group(make_turns):
    # In floating point 0.1 + 0.2 + 0.7 and 0.7 + 0.2 + 0.1 differ.
    turns = _turns(make_turns, {"a": [0.1, 0.2, 0.7], "b": [0.7, 0.2, 0.1], "c": [0.2, 0.7, 0.1]})
    selection = _select(turns, strategy="top_k", keep_count=1)
    assert len(set(selection["score"].to_pylist())) == 1
    assert selection["rank"].to_pylist() == [0, 1, 2]
    assert _kept(selection) == ["a"]


def test_fault_score_read_after_normalisation(make_turns):
    """After 'mean_std' every group has standard deviation 1, so scores are computed from the raw returns."""
    turns = _turns(make_turns, {"a": [0.0, 1.0], "b": [0.0, 8.0]})
    plain, normalised = _select(turns, keep=0.5), _select(turns, "mean_std", keep=0.5)
    assert normalised["score"].to_pylist() == [0.5, 4.0]
    assert _kept(normalised) == ["b"]
    assert normalised.equals(plain)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("strategy", "metric"),
    [(s, m) for s in STRATEGIES for m in METRICS if not (m in ("mean", "sum") and s in ("top_p_linear", "min_p"))],
)
def test_fault_groups_without_variance_survive(make_turns, strategy, metric):
    """In a softmax over raw standard deviations, a group of equal returns has weight exp(0) > 0 and was kept."""
    rows = _turns(make_turns, {"flat": [5.0, 5.0], "a": [0.0, 0.01], "b": [0.0, 0.02]}).to_pylist()
    turns = make_turns([row | {"behaviour_logprobs": [-1.0 - row["member"]] * 2} for row in rows])
    selection = _select(turns, strategy=strategy, metric=metric, keep=1.0)
    assert "flat" not in _kept(selection)
    assert "b" in _kept(selection)


def test_variance_below_rounding_is_none(make_turns):
    # Sums of the same rewards in three orders differ in the last bit, which is no signal.
    rows = [
        {"member": member, "executed_actions": ["Up"] * 3, "action_effective": [True] * 3, "action_rewards": rewards}
        for member, rewards in enumerate([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.2, 0.3, 0.1]])
    ]
    assert _kept(_select(make_turns(rows))) == []


def test_zero_variance_kept_on_request(make_turns):
    turns = _turns(make_turns, {"a": [1.0, 1.0], "b": [2.0, 2.0]})
    assert _kept(_select(turns, strategy="none", should_drop_zero_variance=False)) == ["a", "b"]


@pytest.mark.parametrize("should_keep_largest", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_empty_selection_is_valid(make_turns, strategy, should_keep_largest):
    turns = _turns(make_turns, {"a": [1.0, 1.0], "b": [2.0, 2.0]})
    selection = _select(turns, strategy=strategy, should_keep_largest=should_keep_largest)
    assert selection.num_rows == 2
    assert _kept(selection) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_group_without_valid_trajectory_dropped(make_turns, strategy):
    turns = _turns(make_turns, {"a": [1.0, 2.0]}, status="timeout")
    selection = _select(turns, strategy=strategy, should_drop_zero_variance=False, keep=1.0)
    (group,) = selection.to_pylist()
    assert not group["kept"]
    statistics = ("score", "return_std", "return_mean", "return_max", "return_min", "success_rate")
    assert all(group[name] == 0.0 for name in statistics)


def test_rewards_of_other_turns_are_refused(make_turns):
    turns = _turns(make_turns, {"a": [1.0, 2.0]})
    rewards = compute_rewards(turns.slice(0, 1), RewardConfig())
    with pytest.raises(DataError, match=r"1 of 2 trajectories have none \(first: 'a-1'\)"):
        select_groups(turns, rewards, FilterConfig())


@pytest.mark.ci
@settings(max_examples=30)
@given(
    strategy=st.sampled_from(STRATEGIES),
    groups=some_groups,
    largest=st.booleans(),
    keep=st.sampled_from([0.25, 0.5, 1.0]),
)
@example(  # the last two groups differ by one rounding, which reflecting the scores takes away
    strategy="top_fraction",
    groups=[[0.0, 0.0, 0.0, 2.0], [0.0, 0.0, -1.0, 2.0], [-0.5, 1.5, 1.5, 1.75], [0.0, 0.0, -0.25, 2.0]],
    largest=False,
    keep=0.5,
)
def test_fault_padding_by_duplicates(make_turns, strategy, groups, largest, keep):
    """After strong filtering, batches were padded with copies of random samples; here every group appears once.

    Ranks are a permutation, kept groups have the first ranks, and none of them has zero variance.
    """
    turns = _turns(make_turns, _named(groups))
    selection = _select(turns, strategy=strategy, should_keep_largest=largest, keep=keep)
    assert selection["group_id"].to_pylist() == list(_named(groups))
    ranks, kept = selection["rank"].to_numpy(), selection["kept"].to_numpy()
    assert sorted(ranks) == list(range(len(groups)))
    assert sorted(ranks[kept]) == list(range(kept.sum()))
    assert (selection["return_std"].to_numpy()[kept] > 0).all()


@pytest.mark.ci
@settings(max_examples=30)
@given(strategy=st.sampled_from(STRATEGIES), groups=some_groups, data=st.data())
def test_selection_independent_of_order(make_turns, strategy, groups, data):
    named = _named(groups)
    order = data.draw(st.permutations(list(named)))
    shuffled = {name: data.draw(st.permutations(named[name])) for name in order}
    one = _select(_turns(make_turns, named), strategy=strategy)
    other = _select(_turns(make_turns, shuffled), strategy=strategy)
    scores = {row["group_id"]: row["score"] for row in one.to_pylist()}
    assert scores == {row["group_id"]: row["score"] for row in other.to_pylist()}
    # With ties, another group of the same score may be kept, but never one of another score.
    assert sorted(scores[name] for name in _kept(one)) == sorted(scores[name] for name in _kept(other))


@pytest.mark.ci
@settings(max_examples=30)
@given(strategy=st.sampled_from(STRATEGIES), groups=some_groups, shift=st.integers(-16, 16))
def test_reward_shift_does_not_matter(make_turns, strategy, groups, shift):
    moved = [[value + shift for value in returns] for returns in groups]
    one = _select(_turns(make_turns, _named(groups)), strategy=strategy)
    other = _select(_turns(make_turns, _named(moved)), strategy=strategy)
    # Rounding may swap groups of equal score, so scores are compared, not names.
    assert _kept_scores(one) == pytest.approx(_kept_scores(other))


@pytest.mark.ci
@settings(max_examples=30)
@given(groups=some_groups, keep=st.floats(0.01, 1.0))
def test_how_many_are_kept(make_turns, groups, keep):
    num_candidates = sum(np.std(returns) > 1e-6 for returns in groups)
    num_asked = max(1, int(keep * len(groups) + 0.5 + 1e-9))
    selection = _select(_turns(make_turns, _named(groups)), keep=keep)
    assert len(_kept(selection)) == min(num_asked, num_candidates)


def test_rounding_differences_not_called_equal(make_turns):
    groups = {"flat": [0.0, 0.0, 0.0, 1e-12], "varied": [0.0, 1.0, 0.0, 1.0]}
    flat, varied = _select(_turns(make_turns, groups), keep=0.5)["reason"].to_pylist()
    assert flat == "dropped: zero variance, the 4 valid returns around 2.5e-13 differ by 1e-12 at most"
    assert varied.endswith("keeps 1 of 2 groups, of which 1 without variance")


def test_surplus_groups_keep_first_played(make_turns):
    """DAPO's batch: b, d and e vary, and two are wanted, regardless of score. With one kept before, only b is kept."""
    groups = {"a": [1.0, 1.0], "b": [0.0, 0.1], "c": [2.0, 2.0], "d": [0.0, 1.0], "e": [0.0, 9.0]}
    turns = _turns(make_turns, groups)
    selection = _select(turns, strategy="none", num_wanted=2)
    assert _kept(selection) == ["b", "d"]
    *_, last = selection["reason"].to_pylist()
    rule = "no filter keeps 3 of 5 groups, of which 2 without variance"
    assert last == f"dropped: surplus, the 2 groups wanted were kept before it; {rule}"
    assert _kept(_select(turns, strategy="none", num_wanted=2, num_before=1)) == ["b"]
    assert _kept(_select(turns, strategy="none", num_wanted=2, num_before=2)) == []
    assert _kept(_select(turns, strategy="none", num_wanted=9, num_before=3)) == ["b", "d", "e"]


def test_strategy_chooses_before_surplus_drop(make_turns):
    """top_k keeps the two best, c and a; one is wanted, and a was played first."""
    turns = _turns(make_turns, {"a": [0.0, 4.0], "b": [0.0, 1.0], "c": [0.0, 8.0]})
    selection = _select(turns, strategy="top_k", num_wanted=1)
    assert _kept(selection) == ["a"]
    assert [reason.startswith(SURPLUS) for reason in selection["reason"].to_pylist()] == [False, False, True]


@pytest.mark.ci
@settings(max_examples=30)
@given(strategy=st.sampled_from(STRATEGIES), groups=some_groups, wanted=st.integers(1, 10), before=st.integers(0, 10))
def test_wanted_groups_are_first_kept(make_turns, strategy, groups, wanted, before):
    turns = _turns(make_turns, _named(groups))
    everything, some = (
        _select(turns, strategy=strategy),
        _select(turns, strategy=strategy, num_wanted=wanted, num_before=before),
    )
    assert _kept(some) == _kept(everything)[: max(0, wanted - before)]
    assert some.drop_columns(["kept", "reason"]).equals(everything.drop_columns(["kept", "reason"]))


@pytest.mark.ci
@settings(max_examples=30)
@given(first=some_groups, second=some_groups, wanted=st.integers(1, 12))
def test_two_attempts_select_like_one(make_turns, first, second, wanted):
    """Without a strategy that compares groups, one attempt or two over the same groups keep the same ones."""
    named = list(_named(first + second).items())
    parts = dict(named[: len(first)]), dict(named[len(first) :])
    config = {"strategy": "none", "num_wanted": wanted}
    before = _kept(_select(_turns(make_turns, parts[0]), **config))
    after = _kept(_select(_turns(make_turns, parts[1]), num_before=len(before), **config))
    assert before + after == _kept(_select(_turns(make_turns, dict(named)), **config))


@pytest.mark.ci
@settings(max_examples=30)
@given(groups=some_groups, strategy=st.sampled_from(STRATEGIES), metric=st.sampled_from(["std", "entropy_std"]))
def test_selection_depends_on_tables_only(make_turns, groups, strategy, metric):
    turns = _turns(make_turns, _named(groups))
    one, other = (_select(turns, strategy=strategy, metric=metric, num_wanted=3) for _ in range(2))
    assert one.equals(other)
    validate(one, "selection")


@pytest.mark.parametrize("metric", METRICS)
def test_a_greedy_trajectory_is_not_counted(make_turns, metric):
    rows = [{"member": n, "action_rewards": [value]} for n, value in enumerate([1.0, 3.0])]
    greedy = {"member": 2, "action_rewards": [9.0], "origin": "greedy", "success": True, "response_ids": [1] * 9}
    greedy["behaviour_logprobs"] = [-1.0] * 9
    alone, beside = (_select(make_turns(some), metric=metric) for some in (rows, [*rows, greedy]))
    assert alone.equals(beside)
    assert beside["num_trajectories"].to_pylist() == [2]


@pytest.mark.parametrize("metric", ["entropy", "entropy_std", "length"])
def test_unrecorded_values_score_no_group(make_turns, metric):
    turns = make_turns([{"finish_reason": "unknown", "behaviour_logprobs": []}])
    rewards = compute_rewards(turns, RewardConfig())
    with pytest.raises(DataError, match=f"filter.metric = '{metric}' needs the sampler's log-probs, and 1 responses"):
        select_groups(turns, rewards, FilterConfig(metric=metric))
    assert select_groups(turns, rewards, FilterConfig(metric="std")).num_rows == 1


def test_environments_filtered_separately_on_request(make_turns):
    """Standard deviations 4 3 2 1 in one environment, .4 .3 .2 .1 in the other: keep half of all, or half of each."""
    steady = {f"a{n}": [0.0, 2.0 * n] for n in (4, 3, 2, 1)}
    quiet = {f"b{n}": [0.0, 0.2 * n] for n in (4, 3, 2, 1)}
    tables = [_turns(make_turns, steady, env="lake"), _turns(make_turns, quiet, env="arms")]
    turns = pa.concat_tables(tables)
    together = _select(turns, strategy="top_fraction", keep=0.5)
    apart = _select(turns, strategy="top_fraction", keep=0.5, scope="environment")
    assert _kept(together) == ["a4", "a3", "a2", "a1"]
    assert _kept(apart) == ["a4", "a3", "b4", "b3"]
    assert apart["rank"].to_pylist() == together["rank"].to_pylist() == list(range(8))
    assert apart["reason"].to_pylist()[5] == (
        "kept: number 2 of 4 by std 0.3; top_fraction with keep = 0.5 keeps 2 of 4 groups of arms"
    )
    smallest = _select(turns, strategy="top_k", keep_count=1, scope="environment", should_keep_largest=False)
    assert _kept(smallest) == ["a1", "b1"]
    wanted = _select(turns, strategy="top_fraction", keep=0.5, scope="environment", num_wanted=3)
    assert _kept(wanted) == ["a4", "a3", "b4"]


def test_one_environment_equal_in_both_scopes(make_turns):
    turns = _turns(make_turns, {"g0": [0.0, 1.0], "g1": [0.0, 3.0], "g2": [2.0, 2.0]})
    batch, environment = (_select(turns, keep=0.5, scope=scope) for scope in ("batch", "environment"))
    assert batch.drop_columns("reason") == environment.drop_columns("reason")


@pytest.mark.ci
def test_custom_strategy_described_by_its_options(make_turns, mine):
    mine(
        "import numpy as np\n"
        "from starpo.ragen.core.settings import Settings\n"
        "class Options(Settings):\n    place: int = 0\n"
        "def only(scores, config):\n    return np.arange(len(scores)) == config.options['place']\n"
        "only.options = Options\n"
    )
    groups = {"g0": [0.0, 1.0], "g1": [0.0, 2.0]}
    kept, dropped = _select(_turns(make_turns, groups), strategy="mine_code:only", keep=0.5)["reason"].to_pylist()
    assert kept.endswith("; mine_code:only with place = 0 keeps 1 of 2 groups")
    assert "keep = " not in dropped
