"""Attempts: names of what an iteration did several times, because not enough groups of its first rollout were kept.

    a record's stages:  rollout, reward, variance_filter    rollout:1, reward:1, variance_filter:1    ...
    a stage's inputs:   turns, rewards, selection           turns:1, rewards:1, selection:1           ...

The first attempt, number 0, has the plain names: an iteration that played once is named as if there were no others.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from starpo.ragen.store.records.seals import StageKeys
from starpo.ragen.store.store import Store

_MADE_BY = {"rollout": "turns", "reward": "rewards", "variance_filter": "selection"}
"""Stages that every attempt has, and what each makes."""


def numbered(name: str, attempt: int) -> str:
    """The name of a stage, or the role of an input, in this attempt."""
    return f"{name}:{attempt}" if attempt else name


def kind_of(role: str) -> str:
    """The role without its number, such as `turns` of `turns:1`."""
    return role.partition(":")[0]


def attempt_of(name: str) -> int:
    """The number of the attempt that a recorded stage belongs to; 0 for names that count something else."""
    number = name.partition(":")[2]
    return int(number) if number.isascii() and number.isdigit() else 0


def of_kind(data: Mapping[str, str], kind: str) -> list[str]:
    """The keys of one kind among inputs, by attempt."""
    keys: list[str] = []
    while (role := numbered(kind, len(keys))) in data:
        keys.append(data[role])
    return keys


def recorded_data(stages: StageKeys) -> dict[str, str]:
    """Role -> key of what an iteration played, paid and selected, as far as its record names it."""
    return {
        numbered(_MADE_BY[kind_of(name)], attempt_of(name)): keys[_MADE_BY[kind_of(name)]]
        for name, keys in stages.items()
        if kind_of(name) in _MADE_BY
    }


def attempts(stages: StageKeys) -> list[StageKeys]:
    """What an iteration recorded, attempt by attempt, under plain names: `rollout`, `reward`, `variance_filter`."""
    found: dict[int, StageKeys] = {}
    for name, keys in stages.items():
        if kind_of(name) in _MADE_BY:
            found.setdefault(attempt_of(name), {})[kind_of(name)] = keys
    return [found[number] for number in sorted(found) if "rollout" in found[number]]


def read_attempts(store: Store, kind: str, data: Mapping[str, str], columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of all attempts, one attempt after the other; their groups have different names.

    Args:
        store: Where they are.
        kind: Of the dataset: `turns`, `rewards` or `selection`.
        data: Role -> key; at least the first attempt's.
        columns: Those to read. None: all.

    Raises:
        ArtifactMissingError: If one is not stored.
        ArtifactDamagedError: If one is not what was written.
    """
    return pa.concat_tables([store.read_table(kind, key, columns) for key in of_kind(data, kind)])


def num_kept(store: Store, selection: str) -> int:
    """Groups that a stored selection keeps."""
    return sum(store.read_table("selection", selection, ["kept"])["kept"].to_pylist())
