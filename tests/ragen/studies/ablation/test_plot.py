import re
from xml.etree import ElementTree

import pytest

from starpo.ragen.studies.ablation.grid import Grid
from starpo.ragen.studies.ablation.plot import draw_ablation
from starpo.ragen.studies.ablation.result import AblationResult, CellResult, MatchedDifference, PanelResult

SVG = "{http://www.w3.org/2000/svg}"


def panel(difference, last=0.5):
    curve = {0: 0.2, 4: last}
    return PanelResult(
        first=0.2, last=last, last_iteration=4, peak=last, peak_iteration=4, peak_cross_fitted=last,
        difference=difference, curve=curve, seed_curves={0: curve, 1: curve},
    )  # fmt: skip


def result(*cells) -> AblationResult:
    grid = Grid(name="keep", preset="bandit", axes={"filter.keep": [0.5, 1.0]}, seeds=[0, 1])
    return AblationResult(name="keep", grid=grid, panel="bandit", cells=list(cells))


def cell(label, found, **changes) -> CellResult:
    runs = {seed: f"{label}-{seed}" for seed in (0, 1)}
    facts = {"label": label, "values": {}, "is_base": found is None, "runs": runs, "errors": {}, **changes}
    return CellResult(panels={"bandit": panel(found)}, **facts)


DIFFERENCE = MatchedDifference(mean=0.05, low=-0.05, high=0.15, per_seed={0: 0.0, 1: 0.1}, num_prompts=8)


def test_a_line_a_run_a_line_a_cell_and_its_interval():
    root = ElementTree.fromstring(draw_ablation(result(cell("keep=0.5", None), cell("keep=1.0", DIFFERENCE))))
    lines = root.findall(f"{SVG}polyline")
    assert len(lines) == 2 * 2 + 2
    marks = [float(mark.get("cx")) for mark in root.findall(f"{SVG}circle")]
    assert len(marks) == 3  # two seeds, one mean
    interval = [line for line in root.findall(f"{SVG}line") if line.get("stroke-width") == "2"]
    low, high = float(interval[0].get("x1")), float(interval[0].get("x2"))
    assert (low + high) / 2 == pytest.approx(marks[-1], abs=0.2)  # the interval is even around 0.05


def test_everything_lies_inside_the_picture():
    wild = MatchedDifference(mean=0.9, low=-1.0, high=1.0, per_seed={0: 1.0, 1: -1.0}, num_prompts=8)
    root = ElementTree.fromstring(draw_ablation(result(*(cell(f"c{n}", wild if n else None) for n in range(30)))))
    width, height = map(float, root.get("viewBox").split()[2:])
    for element in root.iter():
        for name in ("x1", "x2", "cx"):
            assert 0 <= float(element.get(name, 0)) <= width
        for name in ("y1", "y2", "cy", "y"):
            assert 0 <= float(element.get(name, 0)) <= height
        for x, y in re.findall(r"([\d.]+),([\d.]+)", element.get("points", "")):
            assert 0 <= float(x) <= width
            assert 0 <= float(y) <= height


def test_a_cell_without_a_finished_run_is_named():
    nothing = cell("keep=1.0", DIFFERENCE, errors={0: "x", 1: "x"}).model_copy(update={"panels": {}})
    drawn = draw_ablation(result(cell("keep=0.5", None), nothing))
    assert "keep=1.0" in drawn
    assert "2 of 2 runs failed" in drawn


def test_labels_are_escaped():
    drawn = draw_ablation(result(cell("<script>alert(1)</script>", None)))
    assert "<script" not in drawn
    ElementTree.fromstring(drawn)


def test_nothing_finished_is_still_a_picture():
    ElementTree.fromstring(draw_ablation(result(cell("a", None).model_copy(update={"panels": {}}))))
