import pytest

from starpo.ragen.studies.ablation import AblationResult, CellResult, MatchedDifference, PanelResult
from starpo.ragen.studies.figures.success import draw_ablation
from starpo.ragen.studies.grid import Grid
from tests.ragen.pictures import lines, texts


def panel(difference, last=0.5):
    curve = {0: 0.2, 4: last}
    return PanelResult(
        first=0.2, last=last, last_iteration=4, peak=last, peak_iteration=4,
        difference=difference, curve=curve, seed_curves={0: curve, 1: curve},
    )  # fmt: skip


def result(*cells) -> AblationResult:
    grid = Grid(name="keep", preset="bandit", axes={"filter.keep": [0.5, 1.0]}, seeds=[0, 1])
    return AblationResult(name="keep", grid=grid, panel="bandit", cells=list(cells))


def cell(label, difference, **changes) -> CellResult:
    runs = {seed: f"{label}-{seed}" for seed in (0, 1)}
    facts = {"label": label, "values": {}, "is_base": difference is None, "runs": runs, "errors": {}, **changes}
    return CellResult(panels={"bandit": panel(difference)}, **facts)


DIFFERENCE = MatchedDifference(mean=0.05, low=-0.05, high=0.15, per_seed={0: 0.0, 1: 0.1}, num_prompts=8)


def test_figure_has_run_and_cell_lines():
    picture = draw_ablation(result(cell("keep=0.5", None), cell("keep=1.0", DIFFERENCE)))
    assert len(lines(picture, "run")) == 2 * 2
    assert len(lines(picture, "mean")) == 2
    ((low, high),) = lines(picture, "interval")
    assert low[1] == high[1]
    assert low[0] < high[0]


def test_cell_without_finished_run_is_named():
    nothing = cell("keep=1.0", DIFFERENCE, errors={0: "x", 1: "x"}).model_copy(update={"panels": {}})
    picture = draw_ablation(result(cell("keep=0.5", None), nothing))
    assert {"keep=1.0", "2 of 2 runs failed"} <= set(texts(picture))
    assert len(lines(picture, "mean")) == 1


@pytest.mark.parametrize("label", ["<script>alert(1)</script>", "$\\frac$", "keep=\x1b[2J"])
def test_labels_stay_text(label):
    assert label.replace("\x1b", "") in texts(draw_ablation(result(cell(label, None))))
