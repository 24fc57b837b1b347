"""Grids that extend other grids."""

import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.studies.grid import Grid

BASE = """
preset = "bandit"
seeds = [0, 1, 2]
figure = "league"

[cells.vanilla]

[cells.KL]
update.kl_coefficient = 0.01

[cells.critic]
update.advantage = "gae"

[overrides]
iterations = 80

[overrides.update]
clip_high = 0.2
entropy_coefficient = 0.0

[finding]
source = "Fig. 9"
claim = "a claim"
"""


@pytest.fixture
def cut(write):
    """`cut(text)`: write a grid that extends `base`, and load it."""

    def cut(text: str) -> Grid:
        write(BASE, "base")
        return Grid.load(write(f'extends = "base"\n{text}', "cut"))

    return cut


def test_inherits_all_but_name_figure_finding(cut):
    grid = cut("")
    assert (grid.name, grid.preset, grid.seeds) == ("cut", "bandit", [0, 1, 2])
    assert list(grid.cells) == ["vanilla", "KL", "critic"]
    assert (grid.figure, grid.finding) == ("success", None)


def test_repeated_settings_replace_one_by_one(cut):
    grid = cut('preset = "sokoban"\n[overrides]\niterations = 8\n[overrides.update]\nclip_high = 0.3\n')
    assert grid.preset == "sokoban"
    assert grid.overrides == {"iterations": 8, "update": {"clip_high": 0.3, "entropy_coefficient": 0.0}}


def test_settings_of_other_type_not_taken(write):
    sokoban = (
        'preset = "bandit"\nseeds = [0]\n[cells.one]\n[overrides.environment]\ntype = "sokoban"\nmin_solution = 6\n'
    )
    write(sokoban, "base")
    cut = Grid.load(write('extends = "base"\n[overrides.environment]\ntype = "frozen_lake"\nslip = 0.0\n', "cut"))
    assert cut.overrides == {"environment": {"type": "frozen_lake", "slip": 0.0}}


def test_cells_in_order_first_is_base(cut):
    grid = cut('only = ["KL", "mine"]\n[cells.mine]\nonline_k = 5\n')
    assert grid.cells == {"KL": {"update.kl_coefficient": 0.01}, "mine": {"online_k": 5}}


def test_missing_cell_suggests_near_ones(cut):
    with pytest.raises(ConfigError, match=r"cut\.toml: only: there is no cell 'critics' \(did you mean 'critic'\?\)"):
        cut('only = ["critics"]')


def test_grids_that_extend_each_other(write):
    write('extends = "other"', "one")
    with pytest.raises(ConfigError, match=r"extends = 'other': these grids extend each other"):
        Grid.load(write('extends = "one"', "other"))


def test_shipped_grid_found_after_neighbour(write, tmp_path):
    shipped, mine = tmp_path / "shipped", tmp_path / "own"
    for folder in (shipped, mine):
        folder.mkdir()
    (shipped / "whole.toml").write_text('preset = "bandit"\nseeds = [0, 1, 2]\n[cells.a]\n[cells.b]\nonline_k = 2')
    (mine / "mine.toml").write_text('extends = "whole"\nonly = ["b"]')
    assert list(Grid.load(mine / "mine.toml", shipped).cells) == ["b"]
    with pytest.raises(ConfigError, match=r"no such grid in .*own"):
        Grid.load(mine / "mine.toml")
    (mine / "whole.toml").write_text(
        'extends = "whole"\n[cells.b]\nonline_k = 5'
    )  # named like the grid that it extends
    assert Grid.load(mine / "mine.toml", shipped).cells == {"b": {"online_k": 5}}
