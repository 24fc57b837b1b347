"""The same work has the same key in any process; any change gives another key."""

import json
import subprocess
import sys
from enum import Enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.store.artifacts.keys import canonical_json, stage_key
from starpo.schemas.manifest import Stage

ROLLOUT = Stage(name="rollout", version=1)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def key(settings: dict[str, object], **changes: object) -> str:
    work = {"stage": ROLLOUT, "settings": settings, "inputs": {"checkpoint": "c", "turns": "t"}, "seed": 7, **changes}
    return stage_key(**work)  # type: ignore[arg-type]


def test_key_matches_golden_value() -> None:
    """Golden value: if it changes, no stored artifact is found any more."""
    assert key({"temperature": 1.0}) == "48dd911abc7e33434421bcf730799908"


def test_order_does_not_matter() -> None:
    assert key({"a": 1, "b": {"x": 1, "y": 2}}) == key({"b": {"y": 2, "x": 1}, "a": 1})
    assert key({}, inputs={"a": "1", "b": "2"}) == key({}, inputs={"b": "2", "a": "1"})


@limits(deadline=None)
@given(settings=st.dictionaries(st.text(max_size=3), json_values, min_size=1, max_size=4), data=st.data())
def test_any_setting_change_changes_key(settings: dict[str, object], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(settings)))
    other = {**settings, name: data.draw(json_values)}
    assert json.loads(canonical_json(settings)) == settings  # it loses nothing
    assert (key(settings) == key(other)) == (canonical_json(settings) == canonical_json(other))
    assert key(settings) == key(dict(reversed(settings.items())))
    assert key({name: settings[name]}) != key({f"{name}'": settings[name]})


@pytest.mark.parametrize(
    "changes",
    [
        {"stage": Stage(name="rollout", version=2)},
        {"stage": Stage(name="reward", version=1)},
        {"inputs": {"checkpoint": "d", "turns": "t"}},
        {"inputs": {"turns": "c", "checkpoint": "t"}},
        {"inputs": {}},
        {"seed": 8},
        {"seed": None},
        {"code": {"environment": "0123"}},
    ],
)
def test_any_other_change_changes_the_key(changes: dict[str, object]) -> None:
    assert key({"a": 1}, **changes) != key({"a": 1})


def test_one_form_for_equal_values() -> None:
    class Colour(Enum):
        RED = "red"

    assert canonical_json((1, 2)) == canonical_json([1, 2]) == "[1,2]"
    assert canonical_json(Colour.RED) == '"red"'
    assert canonical_json(-0.0) == canonical_json(0.0) == "0.0"
    assert canonical_json(np.float64(0.1)) == canonical_json(0.1) == "0.1"
    assert canonical_json(1e-5) == "1e-05"
    assert canonical_json(1.0) != canonical_json(1)
    assert canonical_json(True) == "true"
    assert canonical_json("é√") == r'"\u00e9\u221a"'
    assert canonical_json(UpdateConfig()) == canonical_json(UpdateConfig().model_dump(mode="json"))


@pytest.mark.parametrize("value", [{1, 2}, object(), float("nan"), float("inf"), {1: 2}, b"x"])
def test_value_without_json_form_fails(value: object) -> None:
    with pytest.raises(TypeError, match="no JSON form"):
        canonical_json({"a": [value]})


@pytest.mark.ci
def test_key_is_independent_of_hash_seed() -> None:
    """Known fault of the reference implementation: it derives seeds from Python's salted `hash()`."""
    code = (
        "from starpo.ragen.store.artifacts.keys import stage_key; from starpo.schemas.manifest import Stage;"
        "print(stage_key(Stage(name='rollout', version=1), {'a': (1, 2.5), 'b': 'x'}, {'c': 'd'}, 3))"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True
        ).stdout
        for salt in ("1", "2")
    }
    assert keys == {stage_key(ROLLOUT, {"b": "x", "a": [1, 2.5]}, {"c": "d"}, 3) + "\n"}
