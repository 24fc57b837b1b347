"""What a program played is a chat: roles, calls, results, schemas; in a real browser."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.evidence.report.chat import read_messages
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.methods.programs.teacher import record_for_new_policy
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import put_folder

pytestmark = pytest.mark.ci
HOSTILE = "</script><script>document.title='owned'</script>"
PROGRAM = """
from openai import OpenAI

PLACE = {"type": "object", "properties": {"box": {"type": "integer"}}}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}, "tags": {"type": "array"}}}
TOOLS = [
    {"type": "function", "function": {"name": "look", "description": "Look {in} a \\"box\\".", "parameters": PLACE}},
    {"type": "function", "function": {"name": "write", "description": "HOSTILE", "parameters": TEXT}},
]


def play(task):
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": f"box {task['n']} HOSTILE"}]
    while True:
        answer = OpenAI().chat.completions.create(model="policy", messages=messages, tools=TOOLS).choices[0].message
        if not answer.tool_calls:
            assert task["n"] != 2, "no such box"
            return {"reward": 1.0}
        messages.append(answer.model_dump(exclude_none=True))
        for call in answer.tool_calls:
            content = f"{call.function.name} was called HOSTILE"
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


def teach(messages, task, rng):
    if messages[-1]["role"] == "tool":
        return "Done."
    calls = [("look", {"box": task["n"]}), ("write", {"text": "word " * 30, "tags": ["a"]})]
    return {"content": "I look.", "tool_calls": [{"name": name, "arguments": given} for name, given in calls]}
"""


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Report of a run whose three tasks a program played; the last ended with an error."""
    folder = tmp_path_factory.mktemp("chat")
    (folder / "chatted.py").write_text(PROGRAM.replace("HOSTILE", HOSTILE))
    (folder / "tasks.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(3)))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder))
        environment = {"type": "program", "command": "chatted:play", "tasks": "tasks.jsonl"}
        config = apply_overrides(
            StarPOConfig.model_validate({"environment": {"type": "bandit"}}), {"environment": environment}
        )
        turns = record_for_new_policy(config, "chatted:teach", folder / "tiny", 3, 1)
    store = Store(str(folder / "store"))
    store.runs.create("chat", flow="starpo", preset=None, config=config.model_dump(mode="json"))
    settings = {"environment": environment}
    facts = Facts(key="d" * 32, stage=Stage(name="rollout", version=1), settings=settings, inputs={}, seed=0,
                  is_deterministic=False, replay_fault="a program may do anything")  # fmt: skip
    put_folder(store, "checkpoint", str(folder / "tiny"), facts)
    store.put_table("turns", turns, facts)
    store.runs.record_stage("chat", 0, "warm_start", {"checkpoint": facts.key})
    store.runs.record_stage("chat", 0, "rollout", {"turns": facts.key})
    file = folder / "report.html"
    file.write_text(render_report(gather(store, "chat")), encoding="utf-8")
    return file


@pytest.fixture
def page(browser, chat: Path) -> Iterator:
    browser.open(chat)
    yield browser
    assert browser.complaints() == []
    assert browser.driver.title == "chat · StarPO run"


def speakers(page, turn: int) -> list[str]:
    return page.texts(f".turn[data-turn='{turn}'] .speaker")


def test_roles_calls_and_results(page) -> None:
    assert speakers(page, 0) == ["system", "user", "assistant"]
    assert speakers(page, 1) == ["tool look", "tool write", "assistant"]
    assert "write was called " + HOSTILE in page.texts(".turn[data-turn='1'] .speech[data-role='tool'] pre")
    short, long = page.texts(".turn[data-turn='0'] .speech[data-role='assistant'] .call")
    assert short.startswith("look(box: ")
    assert long == "write" + 'tags[\n "a"\n]' + "text" + "word " * 30  # keys are stored sorted
    # without log-probs, the text stands beside its calls
    assert page.texts(".turn[data-turn='0'] .speech[data-role='assistant'] .plain-text > pre") == ["I look."]


def test_schemas_are_folded(page) -> None:
    assert page.text(".schemas summary") == "Tools look(box), write(text, tags)"
    assert page.count(".schemas[open]") == 0
    assert page.count(".schemas") == 1  # at the start of the context
    declared = page.texts(".schemas > div")
    assert declared[0].startswith('look(box) Look {in} a "box".')
    assert '"type": "integer"' in declared[0]
    assert HOSTILE in declared[1]


def test_no_room_for_pictures(page) -> None:
    assert page.count(".player") == page.count(".strip:not([hidden]) .frame") == 0
    columns = "return getComputedStyle(document.querySelector(arguments[0])).gridTemplateColumns.split(' ').length"
    assert [page.run(columns, selector) for selector in (".trajectory", ".turn")] == [1, 1]
    assert not any("cannot be replayed" in text for text in page.texts(".failure"))
    assert any("cannot be replayed: a program may do anything" in text for text in page.texts("#trajectories .lead"))


def test_error_of_the_program_is_told(page) -> None:
    groups = page.run("return Array.from(document.querySelectorAll('[aria-label=Group] option'), (e) => e.value)")
    by_group = {}
    for group in groups:
        page.go(f"#iteration=0&group={group}")
        by_group[group] = page.texts(".remark summary")
    [remarks] = filter(None, by_group.values())
    assert remarks[0].startswith("ProgramDied exit status 1: AssertionError: no such box")


def test_chat_fits_a_narrow_window(page) -> None:
    try:
        size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page.wait_for("innerWidth === 400")
        assert page.run("return document.documentElement.scrollWidth") <= 400
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        '[{"role": "user"',
        '[{"role": "user", "content": 1}]',
        '[{"role": "user", "content": "", "images": 3}]',
        '[{"role": "user", "content": ' + "[" * 100_000,
    ],
)
def test_text_that_resembles_messages_stays_text(text: str) -> None:
    assert read_messages(text) is None
