"""Settings of search and of greedy members: what is rejected, and what leaves keys unchanged."""

from typing import Any

import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.base import Environment
from starpo.ragen.envs.frozen_lake.environment import FrozenLake
from starpo.ragen.methods.search.settings import BestOfConfig
from starpo.tasks.evaluate import evaluate
from starpo.tasks.rollout import rollout
from starpo.tasks.update import update

FIRST = "0" * 32
BEST_OF = {"rollout.search.type": "best_of", "update.search_rows": "weigh"}


def smoke(**changes: Any) -> StarPOConfig:
    return preset("smoke", changes)


def test_custom_search_settings_in_keys():
    mine = {"rollout.search.type": "tests.ragen.methods.search.mine:shortest", "update.search_rows": "weigh"}
    config = smoke(**mine, **{"rollout.search.patience": 3})
    assert config.model_dump(mode="json")["rollout"]["search"] == {
        "type": "tests.ragen.methods.search.mine:shortest", "num_candidates": 4, "patience": 3,
    }  # fmt: skip
    assert StarPOConfig.model_validate_json(config.model_dump_json()) == config
    assert rollout(0, config, FIRST).code["search"] == mine["rollout.search.type"]
    assert len({rollout(0, smoke(**mine), FIRST).key, rollout(0, config, FIRST).key}) == 2
    for settings, message in (
        ({"rollout.search.type": "best", "update.search_rows": "weigh"}, r"no such type .*known: beam, best_of, look"),
        ({**mine, "rollout.search.depth": 3}, r"rollout\.search\.depth = 3 .*no such setting"),
        ({**mine, "rollout.search.type": "builtins:print"}, "has options = None; expected a class derived from"),
    ):
        with pytest.raises(ConfigError, match=message):
            smoke(**settings)


def test_chosen_responses_must_be_weighed():
    with pytest.raises(ConfigError, match=r"search_rows = 'refuse' .* set update\.search_rows = 'weigh'"):
        smoke(**{"rollout.search.type": "best_of"})
    assert smoke(**BEST_OF).update.search_rows == "weigh"
    with pytest.raises(ConfigError, match=r"schedule: from iteration 1 on: .*search_rows = 'refuse'"):
        smoke(iterations=2, schedule=[{"iteration": 1, "set": {"rollout.search": {"type": "beam"}}}])


def test_zero_temperature_leaves_no_choice():
    with pytest.raises(ValueError, match="all candidates of search identical"):
        RolloutConfig(temperature=0.0, group_size=1, search=BestOfConfig())


def test_search_in_rollout_keys_only():
    plain, searched, greedy = smoke(), smoke(**BEST_OF), smoke(**{"rollout.num_greedy": 1})
    assert len({rollout(0, config, FIRST).key for config in (plain, searched, greedy)}) == 3
    assert rollout(0, plain, FIRST).outputs == ("turns",)
    assert rollout(0, searched, FIRST).outputs == ("siblings", "turns")
    keys = {
        evaluate(0, "sokoban", c.environment, c.agent, c.rollout, c.evaluation, FIRST, lineage="file:///nowhere").key
        for c in (plain, searched, greedy)
    }
    assert len(keys) == 1
    data = dict.fromkeys(("turns", "rewards", "selection"), FIRST)
    assert update(plain, 0, FIRST, FIRST, data).key == update(greedy, 0, FIRST, FIRST, data).key


def test_random_environment_must_support_reseeding(monkeypatch):
    config = apply_overrides(preset("frozen-lake-slippery"), BEST_OF)
    rollout(0, config, FIRST)
    monkeypatch.setattr(FrozenLake, "reseed", Environment.reseed)
    monkeypatch.setattr(FrozenLake, "reset", lambda self, **_: None)
    with pytest.raises(ConfigError, match=r"which cannot be made: frozen_lake: has_chance is True .*reseed"):
        rollout(0, config, FIRST)
