"""A trained run is exported, imported again, carried in a folder, and verified in another store."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.store import Store
from starpo.tasks.loop.verify import verify_run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RUN = "mine"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, prefect_server: None) -> Path:
    folder = tmp_path_factory.mktemp("exchange") / "store"
    starpo(preset("smoke", {"iterations": 1}), preset="smoke", store=str(folder), run=RUN)
    return folder


def ragen(store: Path, *arguments: str) -> Any:
    done = CliRunner().invoke(app, [*arguments, "--store", str(store)])
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def test_what_is_exported_is_what_the_model_saw(finished: Path, tmp_path: Path) -> None:
    ragen(finished, "export", RUN, "--format", "messages", "-o", str(tmp_path / "out"))
    store = Store(str(finished))
    stages = store.runs.iteration(RUN, 0)
    tokenizer = load_tokenizer(store.local_folder("checkpoint", stages["warm_start"]["checkpoint"]))
    rows = store.read_table("turns", stages["rollout"]["turns"]).to_pylist()
    contexts: dict[tuple[str, int], list[int]] = {}
    for row in sorted(rows, key=lambda row: (row["trajectory_id"], row["turn"])):
        start = row["turn"] if row["is_context_start"] else max(t for i, t in contexts if i == row["trajectory_id"])
        contexts.setdefault((row["trajectory_id"], start), []).extend(row["prompt_ids"] + row["response_ids"])
    lines = [json.loads(line) for line in (tmp_path / "out" / "iteration-00000.jsonl").read_text().splitlines()]
    assert len(lines) == len(contexts)
    for line in lines:
        ids = contexts[line["trajectory_id"], line["turns"][0]]
        said = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert tokenizer.apply_chat_template(line["messages"], tokenize=False).startswith(said)


def test_atif_comes_back_as_the_same_rows(finished: Path, tmp_path: Path) -> None:
    ragen(finished, "export", RUN, "--format", "atif", "-o", str(tmp_path / "out"))
    folder = str(tmp_path / "out" / "iteration-00000")
    ragen(finished, "import", "again", folder, "--format", "atif", "--preset", "smoke")
    store = Store(str(finished))
    keys = [store.runs.iteration(run, 0)["rollout"]["turns"] for run in (RUN, "again")]
    mine, again = (store.read_table("turns", key) for key in keys)
    assert again.equals(mine)
    assert store.manifest("turns", keys[0]).content_digest == store.manifest("turns", keys[1]).content_digest


def test_a_run_that_was_carried_in_a_folder_is_verified_elsewhere(finished: Path, tmp_path: Path) -> None:
    ragen(finished, "store", "copy", RUN, str(tmp_path / "carried"))
    ragen(tmp_path / "carried", "store", "copy", RUN, str(tmp_path / "other"))
    findings = verify_run(Store(str(tmp_path / "other")), RUN).findings
    assert {finding.verdict for finding in findings} <= {Verdict.SAME, Verdict.LEFT_OUT}
    assert ("rollout", "turns", Verdict.SAME) in {(f.stage, f.check, f.verdict) for f in findings}
