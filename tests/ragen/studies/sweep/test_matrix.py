"""Generalisation matrix: what each run trains on, success before and after, and what could not be measured."""

import pytest

from starpo.ragen.studies.result import Difference
from starpo.ragen.studies.sweep.matrix import draw_heat_maps, draw_matrix, entries, matrix_conclusion, matrix_rows
from starpo.ragen.studies.sweep.result import CellResult, Score, SweepResult
from starpo.ragen.studies.sweep.sweep import Sweep
from starpo.ragen.studies.sweep.tables import sweep_conclusion, sweep_tables
from starpo.ragen.studies.sweep.transfer import Transfer
from tests.ragen.pictures import lines, texts

TRAINED = {"b": "bandit", "s": "sokoban", "b2": "bandit"}
PANELS = ["bandit", "sokoban"]


def score(run: str, iteration: int, panel: str, success: float) -> Score:
    return Score(
        run=run, iteration=iteration, environment=panel, temperature=0.5, seeds=[0], success=success,
        low=max(0.0, success - 0.1), high=min(1.0, success + 0.1), num_prompts=8, num_episodes=8,
    )  # fmt: skip


@pytest.fixture
def result() -> SweepResult:
    """Each run rises from 0.2 to 0.9 on its own panel; elsewhere b rises, b2 falls, and a cell of s fails."""
    places = [(run, iteration, panel) for run in TRAINED for panel in PANELS for iteration in (0, 8)]
    failed = ("s", 8, "bandit")
    ends = {("b", "sokoban"): 0.4, ("b2", "sokoban"): 0.0}
    change = {
        ("b", "sokoban"): Difference(mean=0.2, low=0.1, high=0.3),
        ("b2", "sokoban"): Difference(mean=-0.2, low=-0.3, high=-0.1),
    }
    risen = Difference(mean=0.7, low=0.6, high=0.8)
    return SweepResult(
        name="g", sweep=Sweep(name="g", is_matrix=True), runs=list(TRAINED), environments=PANELS, temperatures=[0.5],
        waiting={}, leaderboard=[], trained_on=TRAINED,
        cells=[
            CellResult(
                run=run, iteration=at, environment=panel, temperature=0.5, seed=0, checkpoint="0" * 32, key="1" * 32,
                error="boom" if (run, at, panel) == failed else None,
            )
            for run, at, panel in places
        ],
        scores=[
            score(run, at, panel, ends.get((run, panel), 0.9) if at else 0.2)
            for run, at, panel in places
            if (run, at, panel) != failed
        ],
        transfers=[
            Transfer(
                run=run, environment=panel, temperature=0.5, first=0, last=8,
                difference=change.get((run, panel), risen),
            )
            for run in TRAINED
            for panel in PANELS
            if (run, panel) != ("s", "bandit")
        ],
    )  # fmt: skip


def test_runs_of_one_environment_stand_together(result) -> None:
    assert list(dict.fromkeys(run for run, _ in entries(result))) == ["b", "b2", "s"]


def test_an_entry_has_both_ends_and_knows_its_own_environment(result) -> None:
    found = entries(result)
    assert found["b", "bandit"].is_own
    assert found["b", "bandit"].words == "20 \u2192 90%\n80 to 100"
    assert not found["b", "sokoban"].is_own
    assert (found["s", "bandit"].last, found["s", "bandit"].words) == (None, "failed")


def test_a_higher_temperature_does_not_stand_in_for_the_lowest(result) -> None:
    hot = {"temperature": 1.0}
    both = {
        "cells": [*result.cells, *(cell.model_copy(update=hot) for cell in result.cells)],
        "scores": [s.model_copy(update=hot) if (s.run, s.environment) == ("s", "bandit") else s for s in result.scores],
    }
    assert entries(result.model_copy(update=both))["s", "bandit"].first is None


def test_a_difference_is_that_of_the_checkpoints_that_are_shown_or_none(result) -> None:
    between = [t.model_copy(update={"first": 4}) if (t.run, t.environment) == ("b", "bandit") else t
               for t in result.transfers]  # fmt: skip
    found = entries(result.model_copy(update={"transfers": between}))
    assert found["b", "bandit"].difference is None
    assert found["b", "sokoban"].difference is not None


def test_the_table_has_a_row_a_run_and_panel(result) -> None:
    rows = matrix_rows(result)
    assert len(rows) == 6
    assert rows[1] == {
        "run": "b", "trains on": "bandit", "panel": "sokoban", "first": "0.200 [0.100, 0.300]",
        "last": "0.400 [0.300, 0.500]", "last - first": "+0.200 [+0.100, +0.300]",
    }  # fmt: skip
    assert [row["last"] for row in rows if row["run"] == "s"] == ["failed", "0.900 [0.800, 1.000]"]
    assert sweep_tables(result)[1].rows == rows


def test_a_sentence_says_where_training_helps(result) -> None:
    assert matrix_conclusion(result).startswith(
        "From the first checkpoint to the last, success rises on 1 and falls on 1 of 2 panels that a run does not"
    )
    plain = result.model_copy(update={"sweep": Sweep(name="g")})
    assert sweep_conclusion(plain) == ""
    assert matrix_conclusion(result.model_copy(update={"transfers": []})) == ""


def test_a_frame_around_what_a_run_trains_on(result) -> None:
    picture = draw_matrix(result)
    assert len(lines(picture, "own")) == 3
    assert texts(picture).count("failed") == 1
    assert {"plays", "trains on", "b2", "sokoban"} <= set(texts(picture))


def test_only_a_matrix_is_drawn_as_one(result) -> None:
    assert list(draw_heat_maps(result)) == ["success.svg", "generalisation.svg"]
    assert list(draw_heat_maps(result.model_copy(update={"sweep": Sweep(name="g")}))) == ["success.svg"]


def test_nothing_measured_is_still_a_picture(result) -> None:
    nothing = result.model_copy(update={"scores": [], "transfers": []})
    assert texts(draw_matrix(nothing)).count("not measured") == 5
