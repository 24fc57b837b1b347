"""Tasks: three sources, digests, and one message for what cannot be used."""

import json
import sys
from types import SimpleNamespace

import pytest

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.methods.programs.tasks import digest, load_tasks, read_tasks, task_of

FROM_MODULE = """
import itertools

ROWS = [{"n": 1}, {"n": 2}]
ONCE = iter(ROWS)
SETS = [{"n": {1, 2}}]
NOTHING = 3


def rows():
    return ({"n": n} for n in range(4))


def broken():
    yield {"n": 1}
    raise RuntimeError("the disk is on fire")


_calls = itertools.count()


def moody():
    return [{"n": next(_calls)}]
"""


def test_file_iterable_and_function_give_tasks(folder):
    (folder / "rows.py").write_text(FROM_MODULE)
    assert [task["n"] for task in read_tasks("tasks.jsonl")] == [0, 1, 2, 3, 4]
    assert read_tasks("rows:ROWS") == ({"n": 1}, {"n": 2})
    assert len(read_tasks("rows:rows")) == 4


def test_hugging_face_dataset_if_installed(monkeypatch):
    loads = []

    def load_dataset(*path, split):
        loads.append((*path, split))
        return [{"question": "1 + 1?"}]

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    assert read_tasks("hf:openai/gsm8k:main:test") == ({"question": "1 + 1?"},)
    assert loads == [("openai/gsm8k", "main", "test")]
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(EnvironmentFault, match=r"needs the package datasets.*pip install datasets"):
        read_tasks("hf:squad:train")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "tasks.jsonl holds no tasks"),
        ('{"n": 1}\n\nnot json\n', "tasks.jsonl, line 3: no JSON"),
        ('{"n": 1}\n[1]\n', "tasks.jsonl, line 2: a list, expected an object"),
        ('{"n": NaN}\n', "tasks.jsonl, line 1: the field 'n' holds a float, which is not a JSON value"),
        (
            '{"n": 1, "m": 2}\n{"n": 2}\n{"m": 2, "n": 1}\n',
            r"1 of 3 tasks are duplicates \(line 3 repeats line 1\)",
        ),
    ],
)
def test_a_file_that_cannot_be_used(folder, content, message):
    (folder / "tasks.jsonl").write_text(content)
    with pytest.raises(EnvironmentFault, match=message):
        read_tasks("tasks.jsonl")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.jsonl", "missing.jsonl cannot be read"),
        ("rows:ONCE", "can be read only once"),
        ("rows:SETS", "the field 'n' holds a set"),
        ("rows:NOTHING", "'int' object is not iterable"),
        ("rows:broken", "rows:broken gives no tasks.*the disk is on fire"),
        ("rows:absent", "'rows:absent' .*cannot be loaded"),
        ("hf:gsm8k", "expected hf:NAME:SPLIT"),
    ],
)
def test_a_source_that_cannot_be_used(folder, source, message):
    (folder / "rows.py").write_text(FROM_MODULE)
    sys.modules.pop("rows", None)
    with pytest.raises(ValueError, match=message):
        read_tasks(source)


def test_seed_repeats_task_seeds_cover_all(program):
    settings = program("")
    assert task_of(settings, 7) == task_of(settings, 7)
    assert {task_of(settings, seed)["n"] for seed in range(100)} == {0, 1, 2, 3, 4}


def test_a_source_that_changes_is_refused(folder, program):
    (folder / "rows.py").write_text(FROM_MODULE)
    sys.modules.pop("rows", None)
    settings = program("", tasks="rows:moody")
    with pytest.raises(EnvironmentFault, match="rows:moody has changed: its 1 tasks have the digest"):
        load_tasks(settings)


def test_digest_ignores_key_order():
    assert digest({"a": 1, "b": [True, None]}) == digest(json.loads('{"b": [true, null], "a": 1}'))
    assert digest({"a": 1}) != digest({"a": 1.0})
