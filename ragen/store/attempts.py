"""Attempts: names for what an iteration did several times, because too few groups of its first rollout were kept.

    a record's stages:  rollout, reward, variance_filter    rollout:1, reward:1, variance_filter:1    ...
    a stage's inputs:   turns, rewards, selection           turns:1, rewards:1, selection:1           ...

The first attempt, number 0, has the plain names: an iteration with a single rollout is named as if attempts did not
exist.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from starpo.ragen.store.records.seals import StageKeys
from starpo.ragen.store.store import Store

MADE_BY = {"rollout": "turns", "reward": "rewards", "variance_filter": "selection"}
"""Stage of every attempt -> kind of its output."""
TAUGHT = ("teacher_logprobs", "teacher_top_tokens")
"""Kinds of what a teacher says of a rollout; the second if `teacher.top_k` asks for it."""


def numbered(name: str, attempt: int) -> str:
    """Return the name of a stage, or the role of an input, in this attempt."""
    return f"{name}:{attempt}" if attempt else name


def kind_of(role: str) -> str:
    """Return the role without its number, such as `turns` for `turns:1`."""
    return role.partition(":")[0]


def attempt_of(name: str) -> int:
    """Return the attempt number of a recorded stage; 0 for names with another suffix."""
    number = name.partition(":")[2]
    return int(number) if number.isascii() and number.isdigit() else 0


def of_kind(data: Mapping[str, str], kind: str) -> list[str]:
    """Return the keys of one kind among the inputs, in order of attempts."""
    keys: list[str] = []
    while (role := numbered(kind, len(keys))) in data:
        keys.append(data[role])
    return keys


def recorded_data(stages: StageKeys) -> dict[str, str]:
    """Return role -> key of what an update of the iteration may read, as far as it is recorded: turns, rewards and
    selections, a teacher's log-probs, and the credit that the run itself measured."""
    made_by = {name: (kind,) for name, kind in MADE_BY.items()} | {"teacher": TAUGHT, "credit": ("credits",)}
    return {
        numbered(kind, attempt_of(name)): keys[kind]
        for name, keys in stages.items()
        for kind in made_by.get(kind_of(name), ())
        if kind in keys
    }


def played_data(data: Mapping[str, str]) -> dict[str, str]:
    """Return the turns, rewards and selections alone."""
    return {role: key for role, key in data.items() if kind_of(role) in MADE_BY.values()}


def attempts(stages: StageKeys) -> list[StageKeys]:
    """Return the recorded stages of an iteration, one mapping per attempt, under plain names: `rollout`, `reward`,
    `variance_filter`."""
    by_number: dict[int, StageKeys] = {}
    for name, keys in stages.items():
        if kind_of(name) in MADE_BY:
            by_number.setdefault(attempt_of(name), {})[kind_of(name)] = keys
    return [by_number[number] for number in sorted(by_number) if "rollout" in by_number[number]]


def read_attempts(store: Store, kind: str, data: Mapping[str, str], columns: Sequence[str] | None = None) -> pa.Table:
    """Read the rows of all attempts, in order of attempts; their groups have different names.

    Args:
        store: The store that holds them.
        kind: Kind of the dataset: `turns`, `rewards` or `selection`.
        data: Role -> key; contains at least the first attempt's.
        columns: Columns to read. None: all.

    Raises:
        ArtifactMissingError: If a dataset is not stored.
        ArtifactDamagedError: If a dataset is not what was written.
    """
    return pa.concat_tables([store.read_table(kind, key, columns) for key in of_kind(data, kind)])


def num_kept(store: Store, selection: str) -> int:
    """Return the number of groups that a stored selection keeps."""
    return sum(store.read_table("selection", selection, ["kept"])["kept"].to_pylist())
