"""Selection of trajectories by conditions: `success`, `kept`, `valid`, `return>=0.5`.

text -> parse_choice -> predicate of a trajectory
"""

import math
import operator
import re
from collections.abc import Callable

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted
from starpo.ragen.evidence.exchange.played import Played

Choice = Callable[[Played], bool]

_RETURN = re.compile(r"return\s*(>=|<=|>|<)\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")
_SIGNS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


def parse_choice(texts: list[str]) -> Choice:
    """Parse conditions that must all hold; without any, all trajectories match.

    A condition on something unknown (no reward, no filter) never holds.

    Raises:
        ConfigError: If a text is not a condition.
    """
    choices = [_condition(text) for text in texts]
    return lambda played: all(choice(played) for choice in choices)


def _condition(text: str) -> Choice:
    if text == "success":
        return lambda played: played.success is True
    if text == "kept":
        return lambda played: played.is_kept is True
    if text == "valid":
        return lambda played: played.is_valid
    match = _RETURN.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f"{quoted(text)} is not a condition on trajectories; expected success, kept, valid, or such as return>=0.5"
        )
    sign, bound = match[1], float(match[2])

    def holds(played: Played) -> bool:
        value = played.trajectory_return
        if value is None:
            return False
        is_equal = math.isclose(value, bound, rel_tol=1e-9, abs_tol=1e-9)  # returns are sums, which round
        return "=" in sign if is_equal else _SIGNS[sign](value, bound)

    return holds


def parse_iterations(text: str) -> set[int]:
    """Parse iterations such as `0-3,7`: numbers and ranges, both ends included.

    Raises:
        ConfigError: If the text is not such a list.
    """
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:\s*-\s*(\d{1,6}))?\s*", part)
        if match is None or (match[2] and int(match[2]) < int(match[1])):
            raise ConfigError(f"{quoted(text)} names no iterations; expected numbers and ranges such as 0-3,7")
        numbers |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return numbers
