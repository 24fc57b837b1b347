"""A plug-in's own options: validated by its model, completed, stored in the settings, and passed to it."""

import sys
from pathlib import Path

import numpy as np
import pytest

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import FILTERS
from starpo.ragen.envs.sokoban.environment import SokobanSettings

MINE = """
import numpy as np
from pydantic import Field
from starpo.ragen.core.settings import Settings


class Odd(Settings):
    remainder: int = Field(1, ge=0, le=1)


def odd(scores, config):
    return np.arange(len(scores)) % 2 == config.options["remainder"]


odd.options = Odd


def plain(*_):
    raise NotImplementedError


plain.needs = ""
"""
CONFIG = StarPOConfig(environment=SokobanSettings())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_optional.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine_optional", raising=False)


def test_options_completed_and_passed_on() -> None:
    config = apply_overrides(CONFIG, {"filter.strategy": "mine_optional:odd"}).filter
    assert config.options == {"remainder": 1}
    assert config.model_dump(mode="json")["options"] == {"remainder": 1}
    assert FilterConfig.model_validate_json(config.model_dump_json()) == config
    other = apply_overrides(CONFIG, {"filter.strategy": "mine_optional:odd", "filter.options.remainder": 0}).filter
    kept = [load(FILTERS, one.strategy)(np.zeros(4), one).tolist() for one in (config, other)]
    assert kept == [[False, True, False, True], [True, False, True, False]]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"filter.strategy": "mine_optional:odd", "filter.options.remainder": 2}, "remainder: .* less than or equal"),
        ({"filter.options.rest": 1}, "'top_fraction' takes no options, found rest"),
        ({"update.advantage": "mine_optional:plain", "update.advantage_options.k": 1}, "takes no options, found k"),
        ({"reward.options.format.k": 1}, "'format' takes no options"),
        (
            {"update.advantage": "monte_carlo", "update.advantage_options.continuation": 4},
            "continuation: no such option; known: continuations",
        ),
        ({"reward.options.elsewhere.k": 1}, "'elsewhere' is not one of components"),
    ],
)
def test_wrong_options_are_one_message(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        apply_overrides(CONFIG, overrides)
