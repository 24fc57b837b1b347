"""Rewards: three sources, and never 0 by accident."""

import sys
import time
from threading import Event

import pytest

from starpo.ragen.methods.programs.process import Ended
from starpo.ragen.methods.programs.reward import ProgramError, reward_of

TASK = {"answer": 4}
SAID = [{"role": "assistant", "content": "It is 4."}]
FUNCTIONS = """
def right(transcript, task):
    return float(str(task["answer"]) in transcript[-1]["content"])


def pair(transcript, task):
    return 0.25, False


def nothing(transcript, task):
    pass


def broken(transcript, task):
    return transcript[5]
"""


def done(output: str) -> Ended:
    return Ended("done", "", output)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ('talk\n{"reward": 1, "success": false}\n', (1.0, False)),
        ('{"reward": 1}\n{"reward": 0.0}\nbye\n', (0.0, False)),
        ('{"reward": 0.5, "steps": 3}', (0.5, True)),
    ],
)
def test_the_last_object_of_the_output(program, output, expected):
    assert reward_of(program(""), TASK, done(output), SAID) == expected


@pytest.mark.parametrize(
    "output",
    [
        *("", "1.0", '{"score": 1}', '{"reward": true}', '{"reward": NaN}', '{"reward": "1"}', '{"reward": null}'),
        *('{"reward": 1, "success": "yes"}', '{"reward": 1}\n{"answer": 4}', '{"reward": 1'),
    ],
)
def test_output_without_valid_reward_is_error(program, output):
    with pytest.raises(ProgramError, match="the program printed"):
        reward_of(program(""), TASK, done(output), SAID)


def test_a_function_of_transcript_and_task(folder, program):
    (folder / "judge_it.py").write_text(FUNCTIONS)
    sys.modules.pop("judge_it", None)

    def of(name):
        return reward_of(program("", reward=f"judge_it:{name}"), TASK, done(""), SAID)

    assert of("right") == (1.0, True)
    assert of("pair") == (0.25, False)
    with pytest.raises(ProgramError, match="judge_it:nothing returned None; expected a finite number"):
        of("nothing")
    with pytest.raises(ProgramError, match=r"judge_it:broken failed: .*judge_it.py, line 15: IndexError"):
        of("broken")


def test_reward_command_reads_json(folder, program):
    (folder / "judge.py").write_text(
        "import json, sys\ngiven = json.load(sys.stdin)\n"
        "print(0.5 if str(given['task']['answer']) in given['transcript'][0]['content'] else -1)\n"
    )
    command = [sys.executable, "judge.py"]
    assert reward_of(program("", reward=command), TASK, done(""), SAID) == (0.5, True)
    assert reward_of(program("", reward=command), {"answer": 5}, done(""), SAID) == (-1.0, False)
    with pytest.raises(ProgramError, match=r"the reward's command .* died: exit status 1: KeyError: 'answer'"):
        reward_of(program("", reward=command), {}, done(""), SAID)
    with pytest.raises(ProgramError, match="printed no reward"):
        reward_of(program("", reward=["true"]), TASK, done(""), SAID)


def test_unwanted_reward_command_is_killed(folder, program):
    unwanted = Event()
    unwanted.set()  # before the command is started, as where a rollout is stopped between two rewards
    slow, started_at = program("", reward=["sleep", "600"]), time.monotonic()
    with pytest.raises(ProgramError, match="it was ended from outside"):
        reward_of(slow, TASK, done(""), SAID, unwanted)
    assert time.monotonic() - started_at < 60.0
