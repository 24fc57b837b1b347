"""Sessions of coding agents, as published converters wrote them (logs/README.md): every step is in a row."""

import json
from pathlib import Path

import pytest

from starpo.ragen.evidence.exchange.intake import take_in
from starpo.ragen.evidence.exchange.setting_aside import SetAside
from starpo.ragen.evidence.exchange.spool import Spool
from starpo.schemas.datasets import TURNS
from starpo.schemas.texts import messages_of
from starpo.schemas.validate import validate

LOGS = Path(__file__).parent / "logs"
COMMANDS = ["cat prices.txt", "sed -i 's/sum 6/sum 5/' prices.txt && cat prices.txt"]


@pytest.mark.parametrize(
    ("name", "agent", "commands"),
    [
        ("claude", "claude-code", COMMANDS),
        ("codex", "codex", COMMANDS),
        ("mini", "mini-swe-agent", [*COMMANDS, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]),
    ],
)
def test_session_is_read_whole(tmp_path: Path, name: str, agent: str, commands: list[str]) -> None:
    aside = SetAside(tmp_path)
    with Spool(tmp_path / "turns.arrow") as spool:
        taken = take_in(LOGS / f"{name}.atif.json", "atif", spool, aside)
        (batch,) = spool.batches()
    validate(batch, "turns")
    assert batch.schema == TURNS.schema
    assert (taken.num_traces, aside.num_traces, batch.num_rows) == (1, 0, 3)
    steps = json.loads((LOGS / f"{name}.atif.json").read_text())["steps"]
    rows = batch.to_pylist()
    assert {row["env"] for row in rows} == {agent}
    messages = [part for row in rows for part in messages_of(row)[0]]
    results = [result for step in steps for result in (step.get("observation") or {}).get("results", ())]
    assert len(messages) == len([step for step in steps if step["source"] != "agent"]) + len(results)
    calls = [call["function"] for row in rows for call in messages_of(row)[1].get("tool_calls", ())]
    assert [call["arguments"].get("command", call["arguments"].get("cmd")) for call in calls] == commands
    assert "sum 5" in rows[2]["observation"]
