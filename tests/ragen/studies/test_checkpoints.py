"""Cells of a sweep for the current state of its runs: panels, checkpoints, and what cannot be compared."""

from collections.abc import Callable

import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.variants import VARIANTS
from starpo.ragen.store import Store
from starpo.ragen.studies.checkpoints import expand
from starpo.ragen.studies.sweep import Sweep


def test_all_combinations_are_cells(store: Store, begin: Callable[..., str]) -> None:
    runs = [begin("one"), begin("two", done=1)]
    sweep = Sweep(name="s", runs=runs, iterations="all", temperatures=[0.0, 1.0], seeds=[0, 3])
    cells = expand(sweep, store).cells
    assert len(cells) == (3 + 2) * 2 * 2
    assert len({cell.label for cell in cells}) == len(cells)
    assert cells[0].label == "one@0 sokoban T=0 seed=0"
    assert cells[-1].label == "two@1 sokoban T=1 seed=3"
    assert cells[-1].checkpoint == f"{1:032x}"


def test_defaults_are_the_runs_own(store: Store, begin: Callable[..., str]) -> None:
    begin("mine", evaluation__temperature=0.7, evaluation__num_prompts=5)
    (cell,) = expand(Sweep(name="s", runs=["mine"]), store).cells
    assert (cell.iteration, cell.evaluation.temperature, cell.evaluation.num_prompts) == (2, 0.7, 5)
    assert cell.seed == 0


def test_run_panels_precede_catalogue(store: Store, begin: Callable[..., str]) -> None:
    variant = {"type": "sokoban", "vocabulary": "new", "max_solution": 4, "generator": "distance", "min_solution": 1}
    begin("mine", evaluation__variants={"SokobanNewVocab": variant})
    sweep = Sweep(name="s", runs=["mine"], environments=["SokobanNewVocab", "FrozenLake"])
    first, other = expand(sweep, store).cells
    assert first.settings.max_solution == 4
    assert other.settings == VARIANTS["FrozenLake"].settings


def test_cell_independent_of_swept_runs(store: Store, begin: Callable[..., str]) -> None:
    """The other run's agent limits do not apply, although the environment is one of that run's panels."""
    begin("other", agent__max_turns=9, evaluation__variants={"FrozenLake": {"type": "frozen_lake"}})
    begin("mine", agent__max_turns=3)
    sweep = Sweep(name="s", environments=["FrozenLake"])
    alone, together = (
        next(cell for cell in expand(sweep.model_copy(update={"runs": runs}), store).cells if cell.run == "mine")
        for runs in (["mine"], ["other", "mine"])
    )
    assert together == alone
    assert alone.agent.max_turns == 3


def test_missing_checkpoint_is_waited_for(store: Store, begin: Callable[..., str]) -> None:
    begin("mine", iterations=9)
    expansion = expand(Sweep(name="s", runs=["mine"], iterations=[1, 5, 9]), store)
    assert [cell.iteration for cell in expansion.cells] == [1]
    assert expansion.waiting == {"mine": "checkpoint 5, 9"}


def test_new_run_is_waited_for(store: Store, begin: Callable[..., str]) -> None:
    begin("mine")
    store.runs.create("new", flow="starpo", preset="smoke", config=store.runs.get("mine").config)
    expansion = expand(Sweep(name="s", runs=["mine", "new"]), store)
    assert {cell.run for cell in expansion.cells} == {"mine"}
    assert expansion.waiting == {"new": "its first checkpoint"}


def test_impossible_checkpoint_is_refused(store: Store, begin: Callable[..., str]) -> None:
    begin("mine", iterations=4)
    with pytest.raises(ConfigError, match="run mine ends after 4 iterations, so it will never have a checkpoint 5"):
        expand(Sweep(name="s", runs=["mine"], iterations=[5]), store)


def test_unknown_environment_suggests_near_ones(store: Store, begin: Callable[..., str]) -> None:
    begin("mine")
    with pytest.raises(
        ConfigError, match=r"'SokobanNewVocabs' is neither a panel of run mine nor an environment \(did"
    ):
        expand(Sweep(name="s", runs=["mine"], environments=["SokobanNewVocabs"]), store)


def test_one_name_two_environments_refused(store: Store, begin: Callable[..., str]) -> None:
    runs = [begin("one"), begin("two", environment__max_solution=4)]
    with pytest.raises(
        ConfigError, match=r"'sokoban' means one environment in run one and another .* max_solution = 3 and 4"
    ):
        expand(Sweep(name="s", runs=runs), store)


def test_panels_of_different_sizes_are_refused(store: Store, begin: Callable[..., str]) -> None:
    runs = [begin("one"), begin("two", evaluation__num_prompts=9)]
    with pytest.raises(ConfigError, match=r"num_prompts is 8 in run one and 9 in run two.*give --prompts N for both"):
        expand(Sweep(name="s", runs=runs), store)
    assert len(expand(Sweep(name="s", runs=runs, num_prompts=4), store).cells) == 2


def test_runs_without_common_panel_refused(store: Store, begin: Callable[..., str]) -> None:
    runs = [begin("one"), begin("two", environment={"type": "frozen_lake"})]
    with pytest.raises(ConfigError, match="no panel in common"):
        expand(Sweep(name="s", runs=runs), store)


def test_another_releases_settings_are_refused(store: Store) -> None:
    store.runs.create("old", flow="starpo", preset=None, config={"iterations": 3, "no_longer": 1})
    with pytest.raises(ConfigError, match="the settings of run 'old' are not valid in this release"):
        expand(Sweep(name="s", runs=["old"]), store)


def test_matrix_runs_play_all_panels(store: Store, begin: Callable[..., str]) -> None:
    """A bandit agent has one turn; on the FrozenLake of the other run it has that run's turn limit."""
    bandit = {"type": "bandit"}
    limits = {"agent__max_turns": 1, "agent__max_actions": 1, "agent__max_actions_per_turn": 1}
    runs = [begin("lake", environment={"type": "frozen_lake"}), begin("arms", environment=bandit, **limits)]
    cells = expand(Sweep(name="s", runs=runs, iterations="ends", is_matrix=True), store).cells
    assert [(cell.run, cell.environment, cell.iteration) for cell in cells] == [
        (run, panel, iteration) for run in runs for iteration in (0, 2) for panel in ("frozen_lake", "bandit")
    ]
    assert {(cell.run, cell.trained_on) for cell in cells} == {("lake", "frozen_lake"), ("arms", "bandit")}
    turns = {(cell.run, cell.environment): cell.agent.max_turns for cell in cells}
    assert (turns["arms", "bandit"], turns["lake", "bandit"]) == (1, 1)
    assert turns["arms", "frozen_lake"] == turns["lake", "frozen_lake"] == 5
    assert {cell.agent.prompt for cell in cells} == {"state"}  # everything else is the run's own
