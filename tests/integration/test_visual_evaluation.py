"""Images of evaluated prompts: stored under a key of their own kind, exported, in the page, and verified."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import starpo
from starpo.flows.presets import preset
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.evidence.exchange.choosing import parse_choice
from starpo.ragen.evidence.exchange.exporting import export_run
from starpo.ragen.evidence.exchange.played import Recorded
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.words import embedded_words
from starpo.ragen.store import Store
from starpo.tasks.evaluate import evaluate
from tests.integration.forging import RUN, artifact, forge, verify

PANEL = "evaluate:sokoban"
SETTINGS = {
    "iterations": 0,
    "agent.observation": "image",
    "policy.patch_size": 32,
    "policy.demonstration_turns": 300,
    "policy.warm_start_steps": 10,
    "evaluation.num_prompts": 3,
    "evaluation.variants": {},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Store with a run of no iteration: a warm start and its evaluation."""
    store = Store(str(tmp_path_factory.mktemp("seen")))
    starpo.train("smoke", SETTINGS, store=store.url, run=RUN, quiet=True)
    return store


def rows(store: Store, kind: str) -> list[dict[str, Any]]:
    return store.read_table(kind, store.runs.iteration(RUN, 0)[PANEL][kind]).to_pylist()


def test_evaluation_keeps_images_of_prompts(store: Store) -> None:
    turns, places, images = (rows(store, kind) for kind in ("episode_turns", "turn_images", "images"))
    assert {(row["trajectory_id"], row["turn"]) for row in places} == {
        (row["trajectory_id"], row["turn"]) for row in turns if row["finish_reason"] != "none"
    }
    assert {row["image"] for row in places} == {row["digest"] for row in images}


@pytest.mark.parametrize(("observation", "kinds"), [("text", set()), ("image", {"images", "turn_images"})])
def test_key_names_images_where_shown(observation: str, kinds: set[str]) -> None:
    given = {"agent.observation": observation, **({"policy.patch_size": 32} if kinds else {})}
    config = preset("smoke", given)
    settings = config.environment, config.agent, config.rollout, config.evaluation
    work = evaluate(0, "sokoban", *settings, "c" * 32, lineage="")
    assert ("images" in work.settings, set(work.outputs) & {"images", "turn_images"}) == (bool(kinds), kinds)


def test_evaluated_images_are_exported(store: Store, tmp_path: Path) -> None:
    export_run(Recorded(store, RUN, panel="sokoban"), "messages", tmp_path / "out", parse_choice([]))
    (file,) = (tmp_path / "out").glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    contents = [message["content"] for line in lines for message in line["messages"] if message["role"] == "user"]
    shown = [part["image_url"]["url"] for parts in contents for part in parts if part["type"] == "image_url"]
    digests = {Image.from_png(url.partition(",")[2]).digest for url in shown}
    assert digests == {row["digest"] for row in rows(store, "images")}


def test_page_shows_evaluated_images(store: Store) -> None:
    data = gather(store, RUN)
    (evaluation,) = data.evaluations
    members = json.loads(gzip.decompress(evaluation.packed))["groups"][0]["members"]
    shown = [(member["id"], turn, *pair["images"]) for member in members for turn, pair in enumerate(member["turns"])]
    places = [(row["trajectory_id"], row["turn"], row["image"]) for row in rows(store, "turn_images")]
    assert [one for one in shown if len(one) > 2] == places
    assert set(data.images) == {image for *_, image in places}
    assert f"The model saw {len(data.images)} different images in these: all are shown." in embedded_words(data)


def test_verify_checks_evaluated_images(store: Store) -> None:
    folder = Path(store.url)
    sound = verify(folder, stages=[PANEL.split(":")[0]])
    of_stage = [finding for finding in sound.findings if finding.stage == PANEL]
    assert {"images", "turn_images", "texts"} <= {finding.check for finding in of_stage}
    assert sound.exit_code == 0, [finding for finding in of_stage if finding.detail]

    def swap(places: list[dict[str, Any]]) -> None:
        first, other = places[0], next(row for row in places if row["image"] != places[0]["image"])
        first["image"], other["image"] = other["image"], first["image"]

    forge(artifact(folder, 0, PANEL, "turn_images"), swap)
    forged = verify(folder, stages=[PANEL.split(":")[0]])
    wrong = {finding.check: finding for finding in forged.findings if finding.verdict.is_fault}
    assert {"turn_images", "texts"} <= set(wrong)
    assert "turn 0: images is" in wrong["texts"].detail
