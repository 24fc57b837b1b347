import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.studies.grid import Grid, check_grid


def make(**changes):
    usual = {"name": "keep", "preset": "bandit", "axes": {"filter.keep": [0.5, 1.0]}, "seeds": [0, 1, 2]}
    return Grid(**{**usual, **changes})


def refused(allow_few_seeds=False, **changes) -> str:
    with pytest.raises(ConfigError) as caught:
        check_grid(make(**changes), "keep.toml", allow_few_seeds=allow_few_seeds)
    assert str(caught.value).startswith("keep.toml: ")
    return str(caught.value)


def test_a_file_says_all(write):
    grid = Grid.load(
        write(
            'run = "mine"\nseeds = [3, 4, 5]\n'
            "[axes]\nfilter.keep = [1.0, 0.5]\nonline_k = [1, 5]\n[overrides]\niterations = 3\n"
        )
    )
    assert grid.name == "keep"
    assert (grid.run, grid.preset, grid.seeds) == ("mine", None, [3, 4, 5])
    assert grid.axes == {"filter.keep": [1.0, 0.5], "online_k": [1, 5]}
    assert grid.overrides == {"iterations": 3}


def test_quoted_and_nested_paths_equal(write):
    nested = Grid.load(write("seeds = [0]\n[axes]\nfilter.keep = [0.5]\n[axes.update]\nclip_high = [0.2, 0.3]"))
    quoted = Grid.load(write('seeds = [0]\n[axes]\n"filter.keep" = [0.5]\n"update.clip_high" = [0.2, 0.3]'))
    assert nested == quoted


def test_no_toml(write):
    path = write("axes = = 3")
    with pytest.raises(ConfigError, match=r"keep\.toml: is not TOML: .*line 1"):
        Grid.load(path)


def test_misspelt_grid_part_suggests_correction(write):
    with pytest.raises(ConfigError, match=r"keep\.toml: seed = .*no such setting \(did you mean 'seeds'"):
        Grid.load(write('preset = "bandit"\nseed = 3\nseeds = [0]\n[axes]\nonline_k = [1]'))


@pytest.mark.parametrize("seeds", ['"many"', "[0.5, 1, 2]", "[true, 1, 2]", "3", "[]"])
def test_seeds_of_a_wrong_type(write, seeds):
    with pytest.raises(ConfigError, match=r"keep\.toml: .*seeds"):
        Grid.load(write(f'preset = "bandit"\nseeds = {seeds}\n[axes]\nonline_k = [1]'))


def test_an_axis_that_is_no_list(write):
    with pytest.raises(ConfigError, match=r"axes\.filter\.keep = 0\.5: expected a list of values, such as"):
        Grid.load(write("seeds = [0]\n[axes]\nfilter.keep = 0.5"))


def test_named_cells_are_dotted_paths(write):
    grid = Grid.load(write('preset = "bandit"\nseeds = [0]\n[cells.vanilla]\n[cells."StarPO-S"]\nfilter.keep = 0.25'))
    assert grid.cells == {"vanilla": {}, "StarPO-S": {"filter.keep": 0.25}}


def test_name_unusable_as_folder(write):
    with pytest.raises(ConfigError, match=r"name = '\.\./up'"):
        Grid.load(write('name = "../up"\nseeds = [0]\n[axes]\nonline_k = [1]'))


def test_too_few_seeds():
    message = refused(seeds=[0, 1])
    assert "at least 3" in message
    assert "--allow-few-seeds" in message
    check_grid(make(seeds=[0, 1]), "keep.toml", allow_few_seeds=True)


def test_repeated_seeds_are_named():
    assert "repeated: 1" in refused(seeds=[0, 1, 1, 2])
    assert "repeated: 1" in refused(seeds=[1, 1], allow_few_seeds=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"axes": {}}, "expected either `axes`, whose values are multiplied out, or `cells`"),
        ({"cells": {"a": {"online_k": 1}}}, "expected either `axes`"),
        ({"axes": {}, "cells": {"a": {"seed": 3}}}, "`seed` cannot be a setting of a cell"),
        ({"axes": {"seed": [0, 1]}}, "`seed`"),
        ({"overrides": {"seed": 3}}, "`seed`"),
        ({"preset": None}, "either `preset` or `run`"),
        ({"run": "mine"}, "either `preset` or `run`"),
        ({"seeds": [0, 1, -1]}, "0 or more"),
        ({"axes": {"online_k": []}}, "axes.online_k is empty"),
        ({"axes": {"filter.keep": [0.5, 0.5]}}, "axes.filter.keep = [0.5, 0.5]: a value appears twice"),
        ({"overrides": {"filter.keep": 0.5}}, "both an axis and an override"),
        ({"overrides": {"filter": {"keep": 0.5}}}, "both an axis and an override"),
        ({"axes": {}, "methods": ["gspo"]}, "expected either `axes`"),
        ({"methods": ["gspo"]}, "`methods` are compared with the first of `cells`"),
        ({"axes": {}, "cells": {"gspo": {}}, "methods": ["gspo"]}, "the cell 'gspo' appears twice"),
    ],
)
def test_invalid_grid_is_refused(changes, message):
    assert message in refused(**changes)
