"""Mixture: shares, draws that are the same everywhere, parts that play as they do alone, and rejected settings."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.flows.presets import preset
from starpo.ragen.agents.evaluation.panel import make_panel
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs import make
from starpo.ragen.envs.bandit.environment import NAME_PAIRS, BanditSettings
from starpo.ragen.envs.check import check
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.initial_states import fresh_env_seed
from starpo.ragen.envs.mixture.environment import Mixture, MixtureSettings
from starpo.ragen.envs.mixture.shares import deal, draw, weights_of
from starpo.ragen.envs.sudoku.environment import SudokuSettings
from starpo.ragen.envs.variants import VARIANTS

LAKE, ARMS = FrozenLakeSettings(observation="compact"), BanditSettings()
PARTS = {"wet": {"share": 3.0, "environment": LAKE}, "arms": {"share": 1.0, "environment": ARMS}}
MIXTURE = MixtureSettings(parts=PARTS)
WET, ARM = (next(seed for seed in range(99) if MIXTURE.tag_of(seed) == tag) for tag in ("wet", "arms"))


@pytest.mark.ci
def test_conventions_hold_in_every_process():
    assert check(MIXTURE) == []


@pytest.mark.ci
def test_parts_that_know_their_action_cost():
    pytest.importorskip("gymnasium", reason="pip install 'starpo[gymnasium]'")
    taxi = VARIANTS["GymTaxi"].settings
    parts = {"taxi": {"environment": taxi}, "sudoku": {"environment": SudokuSettings()}}
    assert check(MixtureSettings(parts=parts), should_start_process=False) == []


def test_groups_match_even_shares_exactly():
    assert MIXTURE.assign_parts(8) == ["wet", "arms", "wet", "wet", "wet", "arms", "wet", "wet"]
    tenths = weights_of({"a": 0.1, "b": 0.2, "c": 0.7})
    assert Counter(deal(tenths, 10)) == {"a": 1, "b": 2, "c": 7}
    assert Counter(deal(tenths, 1000)) == {"a": 100, "b": 200, "c": 700}


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9).map(lambda n: n / 4), min_size=1), st.integers(1, 60)
)
def test_part_never_leads_by_whole_group(shares, number):
    weights, total = weights_of(shares), sum(shares.values())
    dealt = deal(weights, number)
    assert all(count < shares[tag] / total * number + 1 for tag, count in Counter(dealt).items())
    assert deal(weights, number + 7)[:number] == dealt


def test_draws_follow_shares_not_order():
    other = MixtureSettings(parts=dict(reversed(PARTS.items())))
    assert (other, hash(other)) == (MIXTURE, hash(MIXTURE))
    seeds = [derive_seed("draws", n) for n in range(4000)]
    drawn = [MIXTURE.tag_of(seed) for seed in seeds]
    assert drawn == [other.tag_of(seed) for seed in seeds]
    assert Counter(drawn)["arms"] / 4000 == pytest.approx(0.25, abs=0.025)  # 3.6 standard deviations
    assert [draw(weights_of({"a": 1.0, "b": 1.0}), seed) for seed in range(12)] == list("baabbaaaaaba")


def test_part_plays_as_alone():
    mixture, lake = make(MIXTURE), make(LAKE)
    assert isinstance(mixture, Mixture)
    assert mixture.reset(seed=WET, dynamics_seed=5) == lake.reset(seed=WET, dynamics_seed=5)
    for action in ("Left", "Down", "Right"):
        if not lake.is_over:
            assert mixture.step(action) == lake.step(action)
    assert mixture.state_digest() == lake.state_digest()
    assert (mixture.rules(), mixture.grammar, mixture.has_chance) == (lake.rules(), lake.grammar, True)
    mixture.reset(seed=ARM)
    assert set(mixture.actions) in [set(pair) for pair in NAME_PAIRS["train"]]
    assert not mixture.is_success
    mixture.step(mixture.part.high_risk_arm)
    assert mixture.is_success


def test_part_seed_redrawn_until_it_fits():
    for tag in MIXTURE.tagged():
        seeds = [fresh_env_seed(MIXTURE, "x", n, excluded=frozenset({"0" * 16}), tag=tag) for n in range(20)]
        assert {MIXTURE.tag_of(seed) for seed in seeds} == {tag}
        assert len(set(seeds)) == 20


def test_panel_holds_out_only_many_states():
    panel = make_panel(MIXTURE, 40, panel_seed=3)
    assert [MIXTURE.tag_of(seed) for seed in panel.env_seeds] == MIXTURE.assign_parts(40)
    assert make_panel(MIXTURE, 8, panel_seed=3).env_seeds == panel.env_seeds[:8]
    lakes = {d for s, d in zip(panel.env_seeds, panel.state_digests, strict=True) if MIXTURE.tag_of(s) == "wet"}
    assert panel.excluded_digests == lakes
    assert len(lakes) == 30
    assert not panel.is_exhaustive
    assert make_panel(MixtureSettings(parts={"arms": PARTS["arms"]}), 4, panel_seed=3).is_exhaustive


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"a b": PARTS["wet"]}, "a part is named 'a b': expected 1 to 32 letters"),
        ({"seen": PARTS["wet"]}, "none of mixture, seen"),
        ({"bandit": PARTS["wet"]}, "part 'bandit' has the name of an environment but plays another, 'frozen_lake'"),
        ({"both": {"environment": {"type": "mixture", "parts": PARTS}}}, "part 'both' is a mixture itself"),
        ({"x": {"environment": {"type": "lake"}}}, "'lake' is not known here; known: alfworld, bandit"),
        ({**PARTS, "x": {"share": 1e-5, "environment": LAKE}}, "less than one group in 10000"),
    ],
)
def test_indistinct_or_unplayable_parts_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        MixtureSettings(parts=parts)


def test_preset_survives_json_and_part_swap():
    config = preset("mixture")
    assert config.tags == ("bandit", "frozen_lake", "sokoban")
    assert type(config).model_validate_json(config.model_dump_json()) == config
    changed = apply_overrides(config, {"environment.parts.sokoban.share": 2, "environment.parts.bandit.share": 0.5})
    assert Counter(changed.environment.assign_parts(7)) == {"sokoban": 4, "frozen_lake": 2, "bandit": 1}
    other = {"environment.parts.second": {"environment": {"type": "bandit", "names": "held_out"}}}
    assert len(apply_overrides(config, other).tags) == 4
    with pytest.raises(ConfigError, match=r"environment\.parts\.sokoban\.environment\.hight"):
        apply_overrides(config, {"environment.parts.sokoban.environment.hight": 7})
    needy = {"reward.components": ["environment", "agreement"]}
    message = r"'agreement' needs .* environment 'bandit' \(part 'bandit'\) does not provide"
    with pytest.raises(ConfigError, match=message):
        apply_overrides(config, needy)


def test_parts_demonstrated_by_share():
    lessons = resolve(Mixture.lessons)(MIXTURE)
    assert Counter(lesson.type for lesson in lessons) == {"frozen_lake": 45, "bandit": 15}
    rare = MixtureSettings(parts={**PARTS, "wet": {"share": 99.0, "environment": LAKE}})
    for taught in (lessons, resolve(Mixture.lessons)(rare)):
        assert {lesson.names for lesson in taught if lesson.type == "bandit"} == set(NAME_PAIRS)
    demonstrate = resolve(Mixture.demonstrator)
    mixture, lake = make(MIXTURE), make(LAKE)
    for world in (mixture, lake):
        world.reset(seed=WET)
    decisions = [demonstrate(world, 0.2, random.Random(1)) for world in (mixture, lake)]
    assert decisions[0] == decisions[1]
