"""Hostile text in Prefect artifacts, published on a real server and read back, is neither markup nor a link."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from prefect import flow
from prefect.artifacts import Artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName

from starpo.flows import replay, study
from starpo.flows.announcements import Announcements
from starpo.flows.audit import audit
from starpo.flows.iteration_summary import iteration_markdown
from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.evidence.diagnostics.metrics import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.ragen.studies.studies import Ablations, Sweeps
from starpo.schemas.manifest import Stage
from tests.flows.hostile import HOSTILE, RUN, assert_nothing_raw, write_hostile_store
from tests.flows.hostile_results import hostile_ablation, hostile_sweep

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("store")
    write_hostile_store(folder)
    return Store(str(folder))


def published(key: str) -> Artifact:
    found = Artifact.get(key=key)
    assert found is not None, key
    return found


def tokens(page: str) -> Iterator[Token]:
    for token in MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(page):
        yield token
        yield from token.children or ()


def assert_page_is_text(found: Artifact, own_link: str = "") -> list[Token]:
    """Assert that a page has only headings, tables, lists, code and links of ours, and none made by stored text."""
    page = str(found.data)
    assert_nothing_raw(page + str(found.description))
    parsed = list(tokens(page))
    assert {token.type for token in parsed} & {"html_inline", "html_block", "image", "s_open", "em_open"} == set()
    links = [str(token.attrs["href"]) for token in parsed if token.type == "link_open"]
    assert all(own_link and link.startswith(own_link) for link in links), links
    bare = re.sub(r"(`+).*?\1|\]\(file:[^)]*\)", "", page)
    assert "://" not in bare  # a page would render it as a link
    assert "www." not in bare
    return parsed


def assert_table_is_text(found: Artifact) -> None:
    """Assert that the cells of a table, which Prefect shows as plain text, hold no raw hostile text."""
    cells = [str(part) for row in json.loads(str(found.data)) for pair in row.items() for part in pair]
    assert cells
    for cell in cells:
        assert_nothing_raw(cell)
        assert len(cell) < 300


def in_a_flow(publish: Callable[..., Any], *arguments: Any) -> None:
    flow(name="publish")(lambda: publish(*arguments))()


def test_of_an_audit(store: Store) -> None:
    audit(run=RUN, store=store.url, return_state=True)
    assert_page_is_text(published("audit-run"))
    assert_table_is_text(published("audit-run-table"))


def test_of_an_ablation() -> None:
    in_a_flow(study._publish, Ablations("store"), hostile_ablation("evil"))
    parsed = assert_page_is_text(published("ablation-evil"))
    headings = [token for token in parsed if token.type == "heading_open"]
    # the page; the panels; the finding, its figure's measurements and its other claims; failures
    assert len(headings) == 1 + 1 + len(HOSTILE) + 3 + 1
    assert_table_is_text(published("ablation-evil-table"))


def test_of_a_sweep() -> None:
    in_a_flow(study._publish, Sweeps("store"), hostile_sweep("evil"))
    parsed = assert_page_is_text(published("sweep-evil"))
    assert len([token for token in parsed if token.type == "heading_open"]) == 4
    assert_table_is_text(published("sweep-evil-table"))


def test_of_a_replay(store: Store) -> None:
    parameters = {
        "base": HOSTILE[8], "start": 0, "stop": 1, "changed": {evil: {"was": evil, "is": evil} for evil in HOSTILE}
    }  # fmt: skip
    config = preset("smoke").model_dump(mode="json")
    store.runs.create("replayed", flow="replay", preset=HOSTILE[8], config=config, parameters=parameters)
    stage = Stage(name="compare", version=1)
    key = stage_key(stage, {}, {}, 7)
    values = {f"replay/{evil}": 0.5 for evil in HOSTILE}
    table = metrics_table(0, "compare", {"replay/groups_kept_by_both": 1.0, **values})
    store.put_table("metrics", table, Facts(key=key, stage=stage, settings={}, inputs={}, seed=7))
    store.runs.record_stage("replayed", 0, "compare", {"metrics": key})
    in_a_flow(replay._publish, store, "base", "replayed")
    parsed = assert_page_is_text(published("replay-replayed"))
    assert len([token for token in parsed if token.type == "list_item_open"]) == 1 + len(HOSTILE)


def test_of_an_iteration(store: Store) -> None:
    metrics = {f"evaluation/{evil}/success": 0.5 for evil in HOSTILE}
    stages = {evil: {evil: evil} for evil in HOSTILE}
    address = f"{Path(store.url).as_uri()}/runs/{RUN}"
    page = iteration_markdown(RUN, 0, 1, metrics, 1.0, stages, store.url, address)

    def announce() -> None:
        said = Announcements(RUN, address, logging.getLogger(__name__))
        said.begin()
        said.iteration(1, 1, page)

    in_a_flow(announce)
    parsed = assert_page_is_text(published(f"run-{RUN}"), own_link=address)
    assert len([token for token in parsed if token.type == "tr_open"]) == 3 + 2 * len(HOSTILE)
    assert published(f"run-{RUN}-files").data == f"[{address}]({address})"


def test_a_run_has_its_name_its_progress_a_summary_and_a_link(tmp_path: Path, begun: Callable[..., str]) -> None:
    run = starpo(preset("smoke", {"iterations": 1}), preset="smoke", store=begun(tmp_path), run="a.Named_run")
    with get_client(sync_client=True) as client:
        named = FlowRunFilter(name=FlowRunFilterName(any_=[run]))
        (flow_run,) = client.read_flow_runs(flow_run_filter=named)
        found = {artifact.type: artifact for artifact in client.read_artifacts(flow_run_filter=named)}
    assert flow_run.state is not None
    assert flow_run.state.is_completed()
    assert found.keys() >= {"progress", "markdown"}
    assert found["progress"].data == 100.0
    assert found["progress"].description == f"run {run}"
    assert str(published("run-a-named-run").data).startswith("# a.Named\\_run: iteration 1 of 1\n")
    assert f"{tmp_path.as_uri()}/runs/{run}" in str(published("run-a-named-run-files").data)
