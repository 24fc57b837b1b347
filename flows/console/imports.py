"""What `ragen import` does: trajectories from elsewhere become a run that can be asked, audited and shown."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.progress import track

from starpo.flows.console.terminal import Console, print_json, write
from starpo.flows.presets import preset as load_preset
from starpo.flows.training import Runner, reward_and_filter
from starpo.ragen.evidence.imports import read_turns
from starpo.ragen.store import Store
from starpo.ragen.work import Keys, Made, Work
from starpo.schemas.digest import content_digest
from starpo.schemas.manifest import Stage

STAGE = Stage(name="import", version=1)


def import_trajectories(
    store: Store, run: str, files: list[Path], preset: str, overrides: dict[str, Any], *, as_json: bool
) -> None:
    """Store files of dataset `turns`, one an iteration in the order given, with their rewards and selections.

    Nothing is stored before every file has been read; the run appears once all of it is stored.

    Raises:
        ConfigError: If there is no such preset, or a setting is unknown or wrong.
        DataError: If a file is not of dataset `turns`, or its rows break the dataset's rules (they are in quarantine).
        StoreError: If the name is taken by another run.
    """
    config = load_preset(preset, overrides)
    tables = [read_turns(file) for file in files]
    importer = _Importer(store, run)
    console = Console(stderr=True)
    for iteration, (file, table) in enumerate(
        track(list(zip(files, tables, strict=True)), "importing", console=console)
    ):
        turns = _turns(table, file.name).carry_out(store)
        importer.reuse(iteration, "rollout", turns)
        reward_and_filter(importer, config, iteration, turns)
    parameters = {"files": [file.name for file in files]}
    store.runs.create(run, flow="import", preset=preset, config=config.model_dump(mode="json"), parameters=parameters)
    for iteration, name, keys in importer.made:
        store.runs.record_stage(run, iteration, name, keys)
    store.runs.set_state(run, "completed", "imported")
    num_turns = sum(table.num_rows for table in tables)
    if as_json:
        print_json({"run": run, "iterations": len(tables), "turns": num_turns})
    else:
        write(f"run {run}: {len(tables)} iterations, {num_turns} turns. Look it through: ragen audit {run}")


class _Importer(Runner):
    """Does stages here, and writes nothing down yet."""

    def __init__(self, store: Store, name: str) -> None:
        self.name, self.store_url, self._store = name, store.url, store
        self.metrics = {}
        self.made: list[tuple[int, str, Keys]] = []

    def stage(self, iteration: int, work: Work) -> Keys:
        self.reuse(iteration, work.name, self.unrecorded(iteration, work))
        return work.keys

    def unrecorded(self, iteration: int, work: Work) -> Keys:
        return work.carry_out(self._store)

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        self.made.append((iteration, name, keys))


def _turns(table: pa.Table, file: str) -> Work:
    def do(work: Work, store: Store) -> Iterator[Made]:
        yield Made("turns", table, provenance={"file": file}, is_deterministic=False)

    return Work(STAGE, ("turns",), do, {"content": content_digest(table)})
