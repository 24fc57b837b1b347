"""What `ragen import` does: trajectories from elsewhere become a run that can be asked, audited and shown."""

from pathlib import Path
from typing import Any

from rich.progress import track

from flows.console.terminal import Console, print_json, write
from flows.presets import preset as load_preset
from ragen.imports import read_turns
from ragen.store import Store
from schemas.digest import content_digest
from schemas.manifest import Stage
from tasks.diagnose import diagnose
from tasks.reward import reward
from tasks.stage import Keys, StageWork
from tasks.variance_filter import variance_filter

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
    iterations: list[dict[str, Keys]] = []
    console = Console(stderr=True)
    for iteration, (file, table) in enumerate(
        track(list(zip(files, tables, strict=True)), "importing", console=console)
    ):
        work = StageWork(store, STAGE, {"content": content_digest(table)}, {})
        work.put_table("turns", table, is_deterministic=False, provenance={"file": file.name})
        stages: dict[str, Keys] = {"rollout": {"turns": work.key}}
        data = dict(stages["rollout"])
        stages["reward"] = reward.fn(store.url, iteration, config.reward, **data)
        data |= stages["reward"]
        stages["variance_filter"] = variance_filter.fn(store.url, iteration, config.filter, **data)
        data |= stages["variance_filter"]
        stages["diagnose"] = diagnose.fn(store.url, iteration, **data)
        iterations.append(stages)
    parameters = {"files": [file.name for file in files]}
    store.runs.create(run, flow="import", preset=preset, config=config.model_dump(mode="json"), parameters=parameters)
    for iteration, stages in enumerate(iterations):
        for stage, keys in stages.items():
            store.runs.record_stage(run, iteration, stage, keys)
    store.runs.set_state(run, "completed", "imported")
    num_turns = sum(table.num_rows for table in tables)
    if as_json:
        print_json({"run": run, "iterations": len(tables), "turns": num_turns})
    else:
        write(f"run {run}: {len(tables)} iterations, {num_turns} turns. Look it through: ragen audit {run}")
