import json
import re
import shutil
from pathlib import Path

import pytest

from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.evidence.report.comparing import caveats, differences, gather_runs, shared
from starpo.ragen.evidence.report.comparison_page import render_comparison
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.times import stage_seconds
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import Run


@pytest.fixture
def bandit(damaged_run: Store) -> Store:
    """Store that also has a run of another environment, which has only been created."""
    damaged_run.runs.create("bandit", flow="starpo", preset="bandit", config={"environment": {"type": "bandit"}})
    return damaged_run


def test_settings_that_differ_are_listed_and_the_others_counted(stored_run: Store) -> None:
    runs = gather_runs(stored_run, ["hostile", "other"])
    differing, num_same = differences(runs)
    assert [(d.path, d.values) for d in differing] == [("filter.keep", ["0.5", "0.25"])]
    assert num_same > 50
    assert differences(runs[:1]) == ([], num_same + 1)


def test_a_setting_that_a_run_does_not_have_is_absent(bandit: Store) -> None:
    differing, _ = differences(gather_runs(bandit, ["hostile", "bandit"]))
    by_path = {d.path: d.values for d in differing}
    assert by_path["environment.type"] == ["sokoban", "bandit"]
    assert by_path["filter.keep"] == ["0.5", "absent"]


def test_stages_are_shared_up_to_the_filter(stored_run: Store) -> None:
    found = shared(gather_runs(stored_run, ["hostile", "other"]))
    by_stage = {artifact.stage for artifact in found}
    assert by_stage == {"warm_start", "rollout", "reward", "evaluate:sokoban"}
    rollouts = [artifact for artifact in found if artifact.stage == "rollout"]
    assert [artifact.iterations for artifact in rollouts] == [[i, i] for i in range(4)]


def test_an_artifact_of_one_run_alone_is_not_shared(stored_run: Store) -> None:
    assert shared(gather_runs(stored_run, ["hostile"])) == []
    assert shared(gather_runs(stored_run, ["hostile", "hostile"])) == []


def test_success_is_that_of_the_runs_own_panel(stored_run: Store) -> None:
    (run,) = gather_runs(stored_run, ["hostile"])
    last = run.successes[-1]
    assert (last.updates, last.value, last.low, last.high) == (4, *(pytest.approx(v) for v in (0.6, 0.55, 0.65)))


def test_different_environments_are_compared_and_it_is_said(bandit: Store) -> None:
    said = caveats(gather_runs(bandit, ["hostile", "bandit"]))
    assert said[0].startswith("These runs train on different environments (sokoban: hostile; bandit: bandit).")
    assert "No evaluation is stored for bandit." in said
    assert any(s.startswith("Not completed") and "hostile, bandit" in s for s in said)  # one failed, one has no state


def test_different_panels_are_said(stored_run: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = gather_runs(stored_run, ["hostile", "other"])
    assert not any("not evaluated alike" in sentence for sentence in caveats(runs))
    object.__setattr__(runs[1], "panel", "another")
    assert any("not evaluated alike" in sentence for sentence in caveats(runs))


def test_an_unknown_run_is_named_before_anything_is_read(stored_run: Store) -> None:
    with pytest.raises(StoreError, match=r"there is no run 'othr'.*did you mean other"):
        gather_runs(stored_run, ["hostile", "othr"])
    with pytest.raises(ConfigError, match="nothing to compare"):
        gather_runs(stored_run, [])


def test_the_work_is_that_of_all_stages(stored_run: Store) -> None:
    [run] = gather_runs(stored_run, ["hostile"])
    manifests = gather(stored_run, "hostile").manifests
    assert run.seconds == sum(sum(series.values()) for series in stage_seconds(manifests).values()) > 0


def test_a_damaged_run_is_compared_with_what_can_be_read(damaged_run: Store) -> None:
    key = damaged_run.runs.iteration("other", 2)["variance_filter"]["metrics"]
    shutil.rmtree(Path(damaged_run.url) / "metrics" / key)
    runs = gather_runs(damaged_run, ["hostile", "other"])
    assert [len(run.missing) for run in runs] == [0, 1]
    page = render_comparison(runs, "two", damaged_run.url)
    assert "What is missing" in page
    assert key in page


def page_data(page: str) -> dict:
    return json.loads(re.search(r'id="page-data">(.*?)</script>', page)[1])


def test_the_page_has_a_line_a_run_in_every_panel(stored_run: Store) -> None:
    page = render_comparison(gather_runs(stored_run, ["hostile", "other"]), "two", "store")
    data = page_data(page)
    assert [panel["title"] for panel in data["panels"]][:2] == ["Evaluation success", "Training success"]
    for panel in data["panels"]:
        assert [(line["label"], line["colour"]) for line in panel["lines"]] == [("hostile", 0), ("other", 1)]
    assert len(data["panels"][1]["lines"][0]["raw"]) == 4
    assert re.search(r"1 of \d+ settings differ", page)
    assert '<td>rollout</td><td class="number">4 of 4</td><td class="number">4 of 4</td>' in page
    assert '<td>variance_filter</td><td class="number">0 of 4</td><td class="number">0 of 4</td>' in page
    assert "<td>60.0%<small>[55.0%, 65.0%] after 4</small></td>" in page


def test_a_run_without_a_metric_leaves_its_colour_out(bandit: Store) -> None:
    data = page_data(render_comparison(gather_runs(bandit, ["bandit", "hostile"]), "two", "store"))
    assert [(line["label"], line["colour"]) for line in data["panels"][0]["lines"]] == [("hostile", 1)]


def test_hostile_names_are_escaped(stored_run: Store, hostile_texts: tuple[str, ...]) -> None:
    runs = gather_runs(stored_run, ["hostile", "other"])
    for number, run in enumerate(runs):  # a record from another machine may contain anything
        name = hostile_texts[number]
        object.__setattr__(run, "run", Run(**{**run.run.model_dump(), "name": name, "preset": name}))
    page = render_comparison(runs, hostile_texts[0], hostile_texts[1])
    assert page.count("<script") == 2
    assert "<img" not in page
