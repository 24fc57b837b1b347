"""`ragen import`: trajectories from elsewhere become a run that can be asked, audited and shown."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.progress import track

from starpo.flows.cli.options import JsonOption, SetOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.terminal import Console, print_json, write
from starpo.flows.presets import preset as load_preset
from starpo.flows.training import Runner, reward_and_filter
from starpo.ragen.evidence.imports import read_turns
from starpo.ragen.store import Store
from starpo.ragen.work import Keys, Made, Work
from starpo.schemas.digest import content_digest
from starpo.schemas.manifest import Stage

STAGE = Stage(name="import", version=1)


def import_(
    run: Annotated[str, typer.Argument(help="What the run will be called.")],
    files: Annotated[
        list[Path], typer.Argument(help="Files of dataset 'turns' (Parquet, Arrow, JSON lines), one an iteration.")
    ],
    preset: Annotated[str, typer.Option("--preset", help="Settings of reward, filter and environment.")] = "sokoban",
    set_: SetOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store trajectories made elsewhere as a run, to query, audit and show; invalid rows go to quarantine."""
    config = load_preset(preset, parse_overrides(set_))
    opened = open_store(store)
    tables = [read_turns(file) for file in files]
    importer = _Importer(opened, run)
    console = Console(stderr=True)
    for iteration, (file, table) in enumerate(
        track(list(zip(files, tables, strict=True)), "importing", console=console)
    ):
        turns = _turns(table, file.name).carry_out(opened)
        importer.reuse(iteration, "rollout", turns)
        reward_and_filter(importer, config, iteration, turns)
    parameters = {"files": [file.name for file in files]}
    opened.runs.create(run, flow="import", preset=preset, config=config.model_dump(mode="json"), parameters=parameters)
    for iteration, name, keys in importer.made:
        opened.runs.record_stage(run, iteration, name, keys)
    opened.runs.set_state(run, "completed", "imported")
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
