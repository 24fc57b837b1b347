import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.errors import RewardError
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.store import Store
from starpo.schemas.datasets import REWARDS
from starpo.schemas.validate import validate


def _turns_with_returns(make_turns, returns: dict[str, list[float]], **columns):
    """Table of one-turn trajectories with the given returns, by group."""
    rows = [
        {"group_id": group, "member": member, "action_rewards": [value], **columns}
        for group, values in returns.items()
        for member, value in enumerate(values)
    ]
    return make_turns(rows)


def test_return_sums_components_over_turns(make_turns):
    malformed = {"format_ok": False, "status": "format_error", "executed_actions": [], "action_rewards": []}
    turns = make_turns(
        [
            {"turn": 0, "executed_actions": ["Up", "Up"], "action_rewards": [-0.25, -0.25]},
            {"turn": 1, **malformed, "action_effective": [], "forfeited_actions": 2, "action_cost": -0.25},
        ]
    )
    rewards = compute_rewards(turns, RewardConfig(format_penalty=-0.5)).to_pylist()
    assert rewards[0]["component_names"] == ["environment", "format", "forfeit"]
    assert rewards[0]["component_values"] == [-0.5, 0.0, 0.0]
    assert rewards[1]["component_values"] == [0.0, -0.5, -0.5]  # 2 forfeited * -0.25
    assert [row["total"] for row in rewards] == [-0.5, -1.0]
    assert [row["trajectory_return"] for row in rewards] == [-1.5, -1.5]
    assert [row["is_valid"] for row in rewards] == [True, True]


def test_custom_component_may_need_store(make_turns, mine, tmp_path):
    mine(
        "import numpy as np\n\ndef kept(turns, config, store):\n"
        "    store.answers.put({'q': 1}, 'YES')\n    return np.full(turns.num_rows, 2.0)\n\nkept.needs = 'store'\n"
    )
    store = Store(str(tmp_path / "store"))
    rewards = compute_rewards(make_turns([{}]), RewardConfig(components=["mine_code:kept"]), store)
    assert rewards["total"].to_pylist() == [2.0]
    assert store.answers.get({"q": 1}) == "YES"


@pytest.mark.parametrize("normalisation", ["none", "mean", "mean_std", "asymmetric_clip"])
def test_no_turns_give_no_rewards(make_turns, normalisation):
    rewards = compute_rewards(make_turns([]), RewardConfig(normalisation=normalisation))
    assert rewards.num_rows == 0
    assert rewards.schema.equals(REWARDS.schema)


def test_rows_keep_order_if_interleaved(make_turns):
    turns = make_turns(
        [{"member": member, "turn": turn, "action_rewards": [float(member)]} for turn in (1, 0) for member in (2, 1)]
    )
    rewards = compute_rewards(turns, RewardConfig())
    assert rewards["trajectory_id"].to_pylist() == turns["trajectory_id"].to_pylist()
    assert rewards["turn"].to_pylist() == [1, 1, 0, 0]
    assert rewards["trajectory_return"].to_pylist() == [4.0, 2.0, 4.0, 2.0]


def _normalised(make_turns, normalisation, scope):
    turns = _turns_with_returns(make_turns, {"a": [1.0, 3.0], "b": [6.0, 6.0]})
    config = RewardConfig(normalisation=normalisation, normalisation_scope=scope)
    return compute_rewards(turns, config)["normalised_return"].to_pylist()


def test_normalised_by_group(make_turns):
    # a: mean 2, std 1; b: mean 6, std 0, so its equal returns become 0.
    assert _normalised(make_turns, "mean", "group") == [-1.0, 1.0, 0.0, 0.0]
    assert _normalised(make_turns, "mean_std", "group") == [-1.0, 1.0, 0.0, 0.0]


def test_normalised_by_batch(make_turns):
    # All: mean 16 / 4 = 4; deviations -3, -1, 2, 2; variance (9 + 1 + 4 + 4) / 4 = 4.5.
    assert _normalised(make_turns, "mean", "batch") == [-3.0, -1.0, 2.0, 2.0]
    expected = np.array([-3.0, -1.0, 2.0, 2.0]) / np.sqrt(4.5)
    np.testing.assert_allclose(_normalised(make_turns, "mean_std", "batch"), expected, rtol=1e-12)


@pytest.mark.parametrize("scope", ["group", "batch"])
def test_deviation_option_of_public_code(make_turns, scope):
    """Returns 0 0 0 8: mean 2, standard deviation sqrt(48 / 3) = 4 with ddof 1. A single return becomes 0."""
    config = RewardConfig(normalisation="mean_std", normalisation_scope=scope, std_ddof=1)
    for returns, expected in (([0.0, 0.0, 0.0, 8.0], [-0.5, -0.5, -0.5, 1.5]), ([3.0], [0.0])):
        rewards = compute_rewards(_turns_with_returns(make_turns, {"a": returns}), config)
        assert rewards["normalised_return"].to_pylist() == pytest.approx(expected)


@pytest.mark.parametrize("scope", ["group", "environment", "batch"])
def test_the_clip_is_asymmetric(make_turns, scope):
    """Returns 0 0 0 8: mean 2, standard deviation sqrt(48 / 3) = 4. 31 zeros and a 1: mean 1/32, standard deviation
    sqrt(1/32) = .17678, so the 1 is 5.48 of them above and clipped to 3. A failure among successes is clipped to -1."""
    config = RewardConfig(normalisation="asymmetric_clip", normalisation_scope=scope)
    zero = -(1 / 32) / (1 / 32) ** 0.5
    for returns, expected in (
        ([0.0, 0.0, 0.0, 8.0], [-0.5, -0.5, -0.5, 1.5]),
        ([0.0] * 31 + [1.0], [zero] * 31 + [3.0]),
        ([1.0] * 31 + [0.0], [-zero] * 31 + [-1.0]),
        ([2.0, 2.0], [0.0, 0.0]),
        ([3.0], [0.0]),
    ):
        rewards = compute_rewards(_turns_with_returns(make_turns, {"a": returns}), config)
        assert rewards["normalised_return"].to_pylist() == pytest.approx(expected, abs=1e-5)


def test_normalised_by_environment(make_turns):
    """Returns 1 and 3 in one environment, in two groups: mean 2, std 1. Returns 6 and 6 in another: mean 6, std 0."""
    rows = [
        {"group_id": group, "env": env, "action_rewards": [value]}
        for group, env, value in (("a", "x", 1.0), ("b", "x", 3.0), ("c", "y", 6.0), ("d", "y", 6.0))
    ]
    for normalisation in ("mean", "mean_std"):
        config = RewardConfig(normalisation=normalisation, normalisation_scope="environment")
        returns = compute_rewards(make_turns(rows), config)["normalised_return"].to_pylist()
        assert returns == [-1.0, 1.0, 0.0, 0.0]


@given(returns=st.lists(st.integers(-64, 64), min_size=1, max_size=12))
def test_truncated_trajectory_valid_and_in_order(make_turns, returns):
    config = RewardConfig(normalisation="asymmetric_clip")
    rewards = compute_rewards(_turns_with_returns(make_turns, {"a": [float(value) for value in returns]}), config)
    validate(rewards, "rewards")
    by_return = sorted(
        rewards.select(["trajectory_return", "normalised_return"]).to_pylist(), key=lambda r: [*r.values()]
    )
    normalised = [row["normalised_return"] for row in by_return]
    assert normalised == sorted(normalised)
    assert -1.0 <= min(normalised) <= max(normalised) <= 3.0


@pytest.mark.parametrize("scope", ["group", "batch"])
def test_trajectory_counts_once_despite_turns(make_turns, scope):
    # Returns 3 (three turns of 1) and 1: mean 2. Counted by turns it would be (3 * 3 + 1) / 4 = 2.5.
    rows = [{"member": 0, "turn": turn, "action_rewards": [1.0]} for turn in range(3)]
    turns = make_turns([*rows, {"member": 1, "action_rewards": [1.0]}])
    rewards = compute_rewards(turns, RewardConfig(normalisation="mean", normalisation_scope=scope))
    assert rewards["normalised_return"].to_pylist() == [1.0, 1.0, 1.0, -1.0]


@pytest.mark.parametrize("status", ["env_error", "timeout"])
def test_environment_failure_is_no_zero_score(make_turns, status):
    """A fault seen in the field: failures entered group statistics as reward 0. Here the statistics exclude them."""
    failed = [
        {"member": 2, "turn": 0, "action_rewards": [100.0]},
        {"member": 2, "turn": 1, "action_rewards": [], "executed_actions": [], "status": status},
    ]
    turns = make_turns([{"member": 0, "action_rewards": [1.0]}, {"member": 1, "action_rewards": [3.0]}, *failed])
    rewards = compute_rewards(turns, RewardConfig(normalisation="mean_std"))
    assert rewards["is_valid"].to_pylist() == [True, True, False, False]
    assert rewards["normalised_return"].to_pylist() == [-1.0, 1.0, 0.0, 0.0]  # mean 2, std 1 of the valid two


def test_invalid_group_has_no_nan(make_turns):
    turns = make_turns([{"status": "timeout"}])
    for scope in ("group", "environment", "batch"):
        rewards = compute_rewards(turns, RewardConfig(normalisation="mean_std", normalisation_scope=scope))
        assert rewards["normalised_return"].to_pylist() == [0.0]


@given(
    returns=st.lists(st.integers(-64, 64), min_size=4, max_size=4),
    shift=st.integers(-64, 64),
    scale=st.sampled_from([0.5, 2.0, 8.0]),
)
def test_normalisation_ignores_shift_and_scale(make_turns, returns, shift, scale):
    config = RewardConfig(normalisation="mean_std")
    moved = [scale * (value + shift) for value in returns]
    plain = compute_rewards(_turns_with_returns(make_turns, {"a": returns}), config)["normalised_return"]
    other = compute_rewards(_turns_with_returns(make_turns, {"a": moved}), config)["normalised_return"]
    np.testing.assert_allclose(plain.to_numpy(), other.to_numpy(), atol=1e-9)
    np.testing.assert_allclose(plain.to_numpy().mean(), 0.0, atol=1e-9)


@pytest.mark.parametrize("normalisation", ["none", "mean", "mean_std"])
def test_greedy_trajectory_paid_without_statistics(make_turns, normalisation):
    config = RewardConfig(normalisation=normalisation)
    rows = [{"member": n, "action_rewards": [value]} for n, value in enumerate([1.0, 3.0])]
    greedy = {"member": 2, "action_rewards": [100.0], "origin": "greedy"}
    alone, beside = (compute_rewards(make_turns(some), config).to_pylist() for some in (rows, [*rows, greedy]))
    assert beside[:2] == alone
    assert (beside[2]["trajectory_return"], beside[2]["is_valid"]) == (100.0, False)


FAULTY = {
    "None": ("return None", "returned None, expected one number for each of 3 turns"),
    "one number": ("return 1.0", "returned float of shape [], expected one number for each of 3 turns"),
    "too few": ("return np.zeros(2)", "returned ndarray of shape [2], expected one number for each of 3 turns"),
    "a column": ("return np.zeros((turns.num_rows, 1))", "returned ndarray of shape [3, 1], expected one number"),
    "a missing column": (
        "return turns['nothing']",
        r"mine_code.py, line 4: KeyError: .*nothing.* does not exist",
    ),
    "an exception": ("raise RuntimeError('no luck')", "mine_code.py, line 4: RuntimeError: no luck"),
    "an exit": ("raise SystemExit(0)", "mine_code.py, line 4: SystemExit: sys.exit(0) was called"),
    "texts": ("return ['a'] * 3", "ValueError: could not convert string to float: 'a'"),
    "NaN": (
        "return np.array([0, np.nan, np.nan])",
        "returned nan for 2 of 3 turns, the first turn 1 (status ok)",
    ),
    "infinity": ("return np.array([np.inf, 0, 0])", "returned inf for 1 of 3 turns, the first turn 0"),
    "beyond float32": ("return [0, 1e200, 0]", "returned 1e+200 for 1 of 3 turns, the first turn 1"),
}


@pytest.mark.parametrize("kind", FAULTY)
def test_a_faulty_component_is_named(make_turns, mine, kind):
    body, message = FAULTY[kind]
    mine(f"import numpy as np\n\ndef pay(turns, config):\n    {body}\n")
    with pytest.raises(RewardError) as raised:
        compute_rewards(make_turns([{"turn": turn} for turn in range(3)]), RewardConfig(components=["mine_code:pay"]))
    assert str(raised.value).startswith("reward component 'mine_code:pay' ")
    assert re.search(message if kind == "a missing column" else re.escape(message), str(raised.value)), str(
        raised.value
    )


@pytest.mark.parametrize("body", ["[1, 2.5]", "(True, 0)", "np.array([1, 0], np.int8)", "turns['turn']"])
def test_any_row_of_numbers_is_paid(make_turns, mine, body):
    mine(f"import numpy as np\n\ndef pay(turns, config):\n    return {body}\n")
    config = RewardConfig(components=["mine_code:pay"])
    rewards = compute_rewards(make_turns([{"turn": 0}, {"turn": 1}]), config)
    expected = {"[1, 2.5]": [1.0, 2.5], "turns['turn']": [0.0, 1.0]}.get(body, [1.0, 0.0])
    assert rewards["total"].to_pylist() == expected


def test_component_options_follow_settings(make_turns, mine):
    """By themselves, as other parts of one's own read them, and under the component's name."""
    mine(
        "def pay(turns, config):\n"
        "    own = config.options['mine_code:pay']\n"
        "    return [config.options['price'] + own['price']] * turns.num_rows\n\n"
        "from starpo.ragen.core.settings import Settings\n"
        "class Options(Settings):\n    price: float = 0.5\n"
        "pay.options = Options\n"
    )
    config = RewardConfig(components=["mine_code:pay"], options={"mine_code:pay": {"price": 2.0}})
    assert compute_rewards(make_turns([{"turn": 0}]), config)["total"].to_pylist() == [4.0]
