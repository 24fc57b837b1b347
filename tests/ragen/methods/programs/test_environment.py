"""The environment of a program: settings, panels, and what is refused before any work."""

import json
import sys

import pytest
from pydantic import TypeAdapter, ValidationError

from starpo.ragen.agents.evaluation.panel import make_panel
from starpo.ragen.config.environment import EnvironmentConfig
from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs import make
from starpo.ragen.envs.initial_states import fresh_env_seed
from starpo.ragen.methods.programs.chat import Refusal
from starpo.ragen.methods.programs.environment import Program
from starpo.ragen.methods.programs.served import RefusedRequest, Served
from starpo.ragen.methods.programs.settings import ProgramSettings


def test_tasks_are_states_of_panels(program):
    settings = program("")
    panel = make_panel(settings, 3, 11)
    assert len(set(panel.state_digests)) == 3
    world = make(settings)
    drawn = set()
    for number in range(40):
        observation, _ = world.reset(seed=fresh_env_seed(settings, 1, "x", number, excluded=panel.excluded_digests))
        assert world.state_digest() not in panel.excluded_digests
        drawn.add(json.loads(observation)["n"])
    assert len(drawn) == 2
    assert world.replay_fault
    with pytest.raises(EnvironmentFault, match="too few initial states"):
        make_panel(settings, 6, 11)


def test_single_task_shared_with_panels(folder, program):
    (folder / "tasks.jsonl").write_text("{}\n")
    assert make_panel(program(""), 4, 11).is_exhaustive


def test_program_environment_is_never_stepped(program):
    world = make(program(""))
    world.reset(seed=1)
    with pytest.raises(EnvironmentFault, match="cannot be stepped"):
        world.step("yes")


def test_changed_code_or_tasks_are_refused(folder, program):
    settings = program("print(1)")
    text = settings.model_dump_json()
    again = TypeAdapter(EnvironmentConfig).validate_json(text)
    assert again == settings
    assert settings.tasks_digest
    assert settings.code_digest
    make(again).reset(seed=0)
    (folder / "agent.py").write_text("print(2)")
    assert ProgramSettings.model_validate_json(text).code_digest == settings.code_digest
    assert program("print(2)").code_digest != settings.code_digest
    with pytest.raises(EnvironmentFault, match="the code that command and reward name has changed"):
        make(again).reset(seed=0)


def test_stored_run_needs_no_program(folder, program):
    text = program("").model_dump_json()
    for name in ("tasks.jsonl", "agent.py"):
        (folder / name).unlink()
    assert make(ProgramSettings.model_validate_json(text)).replay_fault


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"command": []}, "it has no word"),
        ({"command": "agent.py"}, "found 'agent.py'; expected module:function, or a list of words"),
        ({"command": ["python", "{prompt}"]}, r"\{prompt\} is not a placeholder; known: \{task\}, \{base_url\}"),
        ({"reward": ["judge", "{task}"]}, r"\{task\} is not a placeholder; known: none"),
        ({"reward": "points"}, "found 'points'; expected 'output', module:function"),
        ({"tasks": "missing.jsonl"}, "missing.jsonl cannot be read"),
        ({"time_limit_s": 0.0}, "greater than 0"),
        ({"max_output_bytes": 0}, "greater than or equal to 1"),
        ({"max_calls": 0}, "greater than or equal to 1"),
        ({"variables": ["A=1"]}, "should match pattern"),
    ],
)
def test_settings_that_are_refused(folder, changed, message):
    with pytest.raises(ValidationError, match=message) as refused:
        ProgramSettings(**{"command": [sys.executable], "tasks": "tasks.jsonl"} | changed)
    assert refused.value.error_count() == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"command": ["no-such-agent"]}, "the command 'no-such-agent' is not found here"),
        ({"command": "no_such_module:play"}, "there is no module 'no_such_module'"),
        ({"reward": "no_such_module:score"}, "'no_such_module:score' .*cannot be loaded"),
        ({"reward": "json:__name__"}, "the reward json:__name__ is not a function"),
        ({"reward": ["no-such-judge"]}, "the command 'no-such-judge' is not found here"),
    ],
)
def test_unstartable_program_refused_before_work(program, changed, message):
    with pytest.raises(ValueError, match=message):
        make(program("", **changed)).reset(seed=0)


def test_program_cannot_join_mixture(program):
    parts = {"mine": {"environment": program("").model_dump(), "share": 1.0}}
    with pytest.raises(ValidationError, match="part 'mine' is a 'program', which plays its episodes itself"):
        TypeAdapter(EnvironmentConfig).validate_python({"type": "mixture", "parts": parts})


def test_remarks_of_a_rollout():
    infos = [
        {"refused": 2, "refusals": ["n is 2"], "overridden": {"temperature": 3}},
        {"refused": 1, "refusals": ["n is 2", "no tools"], "overridden": {"seed": 1}},
        {"refused": 0},
    ]
    refused, overridden = Program.remarks([json.dumps(info) for info in infos])
    assert refused == "in 2 of 3 episodes, requests of the program were refused: n is 2 (in 2); no tools (in 1)"
    assert overridden.startswith("what the program sets has no effect (seed, temperature): ")
    assert Program.remarks(["{}"]) == []


def test_refused_requests_named_then_counted(program, monkeypatch):
    token = "a1B2" * 9
    monkeypatch.setenv("MY_TOKEN", token)
    episode = {
        "refused": 40,
        "refused_requests": [
            {"request": n, "endpoint": "POST /v1/chat/completions", "field": "n" * (n > 1), "reason": "n is 2"}
            for n in range(1, 8)
        ],
    }
    settings = program("")
    world = make(settings)
    world.reset(seed=7)
    lines = Program.incidents(settings, [(f"g{n}", 7, json.dumps(episode)) for n in range(2)])
    assert lines[0] == f"g0 (task {world.render()}), request 1, POST /v1/chat/completions: n is 2."
    assert lines[7] == f"g1 (task {world.render()}), request 1, POST /v1/chat/completions: n is 2."
    assert lines[1].endswith("request 2, POST /v1/chat/completions, field n: n is 2.")
    assert (len(lines), lines[-1]) == (11, "and 70 more requests")
    refused = RefusedRequest(3, "GET /" + "x" * 999, token, f"the key is {token}").facts
    assert token not in json.dumps(refused)
    assert max(map(len, map(str, refused.values()))) == 400
    assert Program.incidents(settings, [("g0", 7, '{"refused": 0}')]) == []


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", None),
        (b'{"n": 2,\n "key": "KEY"}', '{"n": 2, "key": "***"}'),
        (b"\xff\x1b[31m", "\ufffd\x1b[31m"),
        (b"a" * 200 + b"b" * 100, "a" * 180 + " ... [300 characters in all] ... " + "b" * 60),
        (b"c" * 4_000_000, "c" * 240 + " ... [4,000,000 bytes in all]"),
    ],
    ids=["none", "secret", "bytes", "long", "huge"],
)
def test_refused_body_is_kept_short(monkeypatch, body, shown):
    monkeypatch.setenv("MY_TOKEN", "a1B2" * 9)
    served = Served()
    served.refuse(Refusal("n is 2", param="n"), "POST /v1/responses", 1, body.replace(b"KEY", b"a1B2" * 9))
    (refused,) = served.named
    assert len(refused.body) <= 8192
    assert refused.facts.get("body") == shown


def test_refused_request_says_what_it_sent(program):
    refused = RefusedRequest(1, "POST /v1/responses", "n", "n is 2. Input should be 1", b'{"n": 2}', 8).facts
    settings = program("")
    (line,) = Program.incidents(settings, [("g0", 7, json.dumps({"refused": 1, "refused_requests": [refused]}))])
    assert line.endswith('request 1, POST /v1/responses, field n: n is 2. Input should be 1. It sent {"n": 2}')
