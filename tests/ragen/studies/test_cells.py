import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.studies.cells import expand
from starpo.ragen.studies.grid import Grid


def cells_of(base, axes, **changes):
    return expand(Grid(name="mine", preset="bandit", axes=axes, seeds=[0, 1, 2], **changes), base, "mine.toml")


def refused(base, axes, **changes) -> str:
    with pytest.raises(ConfigError) as caught:
        cells_of(base, axes, **changes)
    assert str(caught.value).startswith("mine.toml")
    return str(caught.value)


def test_axes_multiply_with_base_first(base):
    cells = cells_of(base, {"filter.keep": [0.5, 1.0], "online_k": [1, 5]})
    assert [cell.label for cell in cells] == [
        "keep=0.5 online_k=1", "keep=0.5 online_k=5", "keep=1.0 online_k=1", "keep=1.0 online_k=5",
    ]  # fmt: skip
    assert [cell.is_base for cell in cells] == [True, False, False, False]
    settings = [(cell.config.filter.keep, cell.config.online_k) for cell in cells]
    assert settings == [(0.5, 1), (0.5, 5), (1.0, 1), (1.0, 5)]


def test_overrides_reach_cells_seeds_reach_runs(base):
    cells = cells_of(base, {"online_k": [1, 5]}, overrides={"iterations": 3, "rollout": {"num_groups": 2}})
    assert {cell.config.iterations for cell in cells} == {3}
    assert {cell.config.rollout.num_groups for cell in cells} == {2}
    assert cells[1].configuration(7).seed == 7
    assert cells[1].configuration(7).online_k == 5


def test_axes_of_one_name_distinguished(base):
    axes = {"update.optimiser.learning_rate": [1e-4], "update.critic.optimiser.learning_rate": [1e-5]}
    label = cells_of(base, axes)[0].label
    assert label == "update.optimiser.learning_rate=0.0001 critic.optimiser.learning_rate=1e-05"


def test_tables_and_text_are_values_too(base):
    cells = cells_of(base, {"update": [{"advantage": "grpo", "clip_high": 0.2}, {"advantage": "reinforce"}]})
    assert [cell.label for cell in cells] == ["update=advantage:grpo,clip_high:0.2", "update=advantage:reinforce"]
    assert cells[1].config.update.advantage == "reinforce"


def test_axis_counts_more_than_an_override(base):
    axes = {"update": [{"clip_high": 0.2, "num_epochs": 1}, {"clip_high": 0.28}]}
    cells = cells_of(base, axes, overrides={"update.clip_high": 0.5, "update.num_epochs": 2})
    assert [cell.config.update.clip_high for cell in cells] == [0.2, 0.28]
    assert [cell.config.update.num_epochs for cell in cells] == [1, 2]


def test_unknown_axis_names_file_and_suggestions(base):
    message = refused(base, {"filter.kep": [0.5]})
    assert message.startswith("mine.toml: axes.filter.kep: there is no setting 'kep' (did you mean 'keep'")
    assert "strategy" in message


@pytest.mark.parametrize(("value", "expected"), [("much", "valid number"), (1.5, "less than or equal to 1")])
def test_wrong_value_names_cell_and_bounds(base, value, expected):
    message = refused(base, {"filter.keep": [0.5, value]})
    assert message.startswith(f"mine.toml, cell keep={value}: filter.keep = {value!r}")
    assert expected in message


def test_contradictory_cell_is_named(base):
    message = refused(base, {"filter.keep": [0.5, 1.0], "filter.strategy": ["top_fraction", "top_k"]})
    assert message.startswith("mine.toml, cell keep=0.5 strategy=top_k: ")
    assert "filter.keep_count" in message


def test_cells_of_the_same_settings(base):
    assert "have the same settings" in refused(base, {"filter": [{"keep": 0.5}, {"keep": 0.5, "metric": "std"}]})


def test_cells_on_different_panels_refused(base):
    message = refused(base, {"evaluation.panel_seed": [1, 2]})
    assert "cells panel_seed=1 and panel_seed=2 are evaluated on different panels" in message
    assert len(cells_of(base, {"evaluation.temperature": [0.5, 1.0]})) == 2


def named(base, cells, **changes):
    return expand(Grid(name="mine", preset="bandit", cells=cells, seeds=[0, 1, 2], **changes), base, "mine.toml")


def test_named_cells_differ_in_any_settings(base):
    vanilla, ours = named(base, {"vanilla": {}, "StarPO-S": {"filter.keep": 0.25, "online_k": 5}})
    assert (vanilla.is_base, ours.is_base, vanilla.config) == (True, False, base)
    assert (ours.label, ours.slug) == ("StarPO-S", "StarPO-S")
    assert (ours.config.filter.keep, ours.config.online_k) == (0.25, 5)


@pytest.mark.parametrize("part", ["numbers", "expected"])
def test_finding_names_existing_cells(base, part):
    finding = {"source": "RAGEN, Fig. 9", "claim": "better", part: {"our": 0.5 if part == "numbers" else "higher"}}
    with pytest.raises(ConfigError, match=rf"finding.{part}: there is no cell 'our' \(did you mean 'ours'"):
        named(base, {"vanilla": {}, "ours": {"online_k": 5}}, finding=finding)
