"""Named environment settings for listing and playing; configurations are not limited to them."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.lookup import TARGET
from starpo.ragen.core.registry import ENVIRONMENTS, SUITES
from starpo.ragen.core.rooms import declared
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.make import settings_type


@dataclass(frozen=True)
class Variant:
    """Named settings.

    Attributes:
        description: One line about them.
        type: Type of the environment, which is imported only when its settings are built.
        changed: Overrides of the defaults.
    """

    description: str
    type: str
    changed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> EnvironmentSettings:
        """The environment's settings.

        Raises:
            ConfigError: If validation fails, for example for a suite's task that does not exist.
            RegistryError: If the environment cannot be imported.
        """
        try:
            return settings_type(self.type)(**self.changed)
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
            raise ConfigError(f"settings of '{self.type}': {'; '.join(faults)}") from error


def variant(name: str) -> Variant:
    """Return the variant of a name, or the default settings of a suite's task (`suite/task`) or of an environment
    named by `module:attribute`.

    Raises:
        ConfigError: If there is no such variant.
    """
    suite, _, task = name.partition("/")
    if suite in SUITES and task:
        return Variant(f"a task of {SUITES[suite]}", suite, {"task": task})
    if TARGET.fullmatch(name):
        return Variant("named by module:attribute", name)
    if name not in VARIANTS:
        raise ConfigError(
            f"{quoted(name)} is not an environment{_near(name)}; `starpo envs` lists them: {', '.join(VARIANTS)}; one "
            "of your own is named as module:attribute, such as stairs:Stairs; a suite's task as suite/task, such as "
            "gymnasium/FrozenLake-v1"
        )
    return VARIANTS[name]


def _near(name: str) -> str:
    matches = difflib.get_close_matches(name, VARIANTS, n=2)
    return f" (did you mean {' or '.join(map(repr, matches))}?)" if matches else ""


VARIANTS: dict[str, Variant] = {
    "Bandit": Variant("two named arms, one pull; the training names", "bandit"),
    "BanditHeldOut": Variant(
        "two named arms, one pull; pairs of names not trained on", "bandit", {"names": "held_out"}
    ),
    "BanditRev": Variant("the training names with their meanings exchanged", "bandit", {"is_reversed": True}),
    "Sokoban": Variant("push the box onto the target; 6x6, 1 box", "sokoban"),
    "SokobanNewVocab": Variant("Sokoban drawn with other symbols, W . G C B A @", "sokoban", {"vocabulary": "new"}),
    "SokobanLarge": Variant("Sokoban, 8x8 with 2 boxes", "sokoban", {"height": 8, "width": 8, "num_boxes": 2}),
    "SokobanCoord": Variant("Sokoban with coordinates below the grid", "sokoban", {"observation": "coord"}),
    "FrozenLake": Variant("walk over ice to the goal; 4x4, one step in three goes as intended", "frozen_lake"),
    "FrozenLakeNoSlip": Variant("the lake without slips: steps go as intended", "frozen_lake", {"slip": 0.0}),
    "FrozenLakeCoord": Variant("the slippery lake with coordinates below", "frozen_lake", {"observation": "coord"}),
    "Game2048": Variant("slide and merge tiles up to 2048", "game_2048"),
    "Game2048Goal64": Variant("slide and merge tiles up to 64, for short games", "game_2048", {"goal": 64}),
    "Rubik": Variant("a 2x2 cube, two quarter turns from solved", "rubik"),
    "RubikOneTurn": Variant("a 2x2 cube, one quarter turn from solved", "rubik", {"scramble": 1}),
    "RubikThreeTurns": Variant("a 2x2 cube, three quarter turns from solved", "rubik", {"scramble": 3}),
    "Sudoku": Variant("fill a 4x4 grid with 6 blank cells", "sudoku"),
    "Sudoku9x9": Variant("fill a 9x9 grid with 45 blank cells", "sudoku", {"size": 9, "num_blanks": 45}),
    "Countdown": Variant("make a number from four others, up to 99", "countdown"),
    "CountdownSmall": Variant(
        "Countdown with three numbers up to 9", "countdown", {"num_numbers": 3, "max_number": 9, "max_target": 30}
    ),
    "CountdownSix": Variant("Countdown with six numbers", "countdown", {"num_numbers": 6, "max_target": 999}),
    "MetaMathQA": Variant("sums in words, five tries at falling pay", "metamath_qa"),
    "SearchQA": Variant("search documents about a made-up world, and answer", "search_qa"),
    "SearchQAOneHop": Variant("SearchQA, one document leads to the answer", "search_qa", {"hops": "one"}),
    "SearchQATools": Variant("SearchQA by tool calls", "search_qa", {"actions": "tools"}),
    "WebShop": Variant("buy what is asked for; 5,000 made-up products", "webshop", {"observation": "compact"}),
    "WebShopHidden": Variant(
        "WebShop, where one attribute that is asked for stands only on the page Features",
        "webshop",
        {"observation": "compact", "num_hidden": 1},
    ),
    "WebShopText": Variant("WebShop with the observations of the original, joined by [SEP]", "webshop"),
} | {name: Variant(**of_room) for name, of_room in declared("variants").items()}
"""By name: the variants of RAGEN, otherwise configured as in the paper; those of the environments that RAGEN-2 adds;
some tasks of suites; and every other environment, such as those of installed packages, with its default settings."""

OTHERS: dict[str, Variant] = {
    "mixture": Variant("episodes of several environments, which the settings list (docs/mixture.md)", "mixture"),
    "levels": Variant("one environment at several values of its settings (docs/curriculum.md)", "levels"),
    "questions": Variant("questions of your own, from a file or a data set (docs/questions.md)", "questions"),
} | {name: Variant(**of_room) for name, of_room in declared("variants_to_complete").items()}
"""Environments without a variant, since they need settings of the user's own: what to name -> what it is."""

_LISTED = {one.type for one in (*VARIANTS.values(), *OTHERS.values())}
VARIANTS |= {
    name: Variant(
        f"of {ENVIRONMENTS.packages[name]}" if name in ENVIRONMENTS.packages else "its default settings", name
    )
    for name in ENVIRONMENTS
    if name not in _LISTED
}
