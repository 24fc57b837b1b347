"""Heat map: one square per score, 'not measured' without one; names are plain text."""

import pytest

from starpo.ragen.studies.figures.heat_maps import draw_scores
from starpo.ragen.studies.leaderboard import Score, Standing, SweepResult
from starpo.ragen.studies.sweep import Sweep
from tests.ragen.pictures import texts


def result(places: list[tuple[str, int, str, float]], missing: int = 0) -> SweepResult:
    score = Score(seeds=[0], success=0.25, low=0.1, high=0.5, num_prompts=8, num_episodes=8)
    none = {"rank": None, "success": None, "low": None, "high": None, "difference": None}
    standings: dict[tuple[str, int, float], dict[str, Score]] = {}
    for number, (run, iteration, panel, temperature) in enumerate(places):
        scores = standings.setdefault((run, iteration, temperature), {})
        scores |= {panel: score} if number >= missing else {}
    return SweepResult(
        name="s", sweep=Sweep(name="s"), runs={place[0]: "bandit" for place in places}, cells={},
        environments=list(dict.fromkeys(place[2] for place in places)),
        leaderboard=[
            Standing(run=run, iteration=iteration, temperature=temperature, scores=scores, **none)
            for (run, iteration, temperature), scores in reversed(standings.items())
        ],
    )  # fmt: skip


def squares(picture: str) -> list[str]:
    return [text for text in texts(picture) if text in ("25.0%", "not measured")]


def test_several_checkpoints_are_rows() -> None:
    places = [(r, i, e, t) for r in ("a", "b") for i in (0, 10) for e in ("sokoban", "bandit") for t in (0.0, 1.0)]
    picture = draw_scores(result(places))
    assert squares(picture) == ["25.0%"] * 16
    assert texts(picture).count("10 to 50") == 16
    assert texts(picture).count("checkpoint 10") == 2
    assert texts(picture).count("T = 1") == 2


def test_what_was_not_measured_is_said() -> None:
    picture = draw_scores(result([("a", 0, "bandit", 0.5), ("a", 1, "bandit", 0.5)], missing=1))
    assert sorted(squares(picture)) == ["25.0%", "not measured"]


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", 'a"b', "a&b", "$x$"])
def test_names_stay_text(name: str) -> None:
    picture = draw_scores(result([("a", 0, name, 0.5), ("b", 0, name, 0.5)]))
    assert "<script>" not in picture
    assert name in texts(picture)
