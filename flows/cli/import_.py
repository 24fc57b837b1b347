"""`starpo import`: turn trajectories from other sources into a run that can be queried, audited and shown."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import typer
from rich.progress import track

from starpo.flows.cli.options import JsonOption, SetOption, StoreOption, open_store, parse_overrides
from starpo.flows.console.documents.stores import ImportedRun
from starpo.flows.console.terminal import Console, print_json, say, write
from starpo.flows.presets import preset as load_preset
from starpo.ragen.core.errors import ConfigError, DataError
from starpo.ragen.evidence.exchange.intake import READERS, iterations_of, take_in
from starpo.ragen.evidence.exchange.setting_aside import SetAside
from starpo.ragen.evidence.exchange.spool import Spool
from starpo.ragen.evidence.imports import read_turns
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Keys, Output, Work
from starpo.ragen.store import Store
from starpo.ragen.store.remote.opening import open_location
from starpo.schemas.datasets import TURN_IMAGES, TURNS
from starpo.schemas.digest import content_digest
from starpo.schemas.manifest import Stage
from starpo.tasks.loop.runner import Runner
from starpo.tasks.loop.training import reward_and_filter

STAGE = Stage(name="import", version=1)
_APPLIED = "sokoban"
"""Preset whose reward and filter are applied if none is named."""


def import_(
    run: Annotated[str, typer.Argument(help="Name of the new run.")],
    files: Annotated[
        list[Path],
        typer.Argument(help="Files, one per iteration; for ATIF also folders of documents, or a whole export."),
    ],
    form: Annotated[
        str,
        typer.Option("--format", help=f"turns (Parquet, Arrow, JSON lines of dataset 'turns'), {', '.join(READERS)}."),
    ] = "turns",
    groups: Annotated[
        Literal["whole", "alone"] | None,
        typer.Option(
            "--groups",
            help="whole: set groups of unusual size aside. alone: each trajectory is a group. Default: whole.",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            help="Settings that they were made with. Default: none is known; reward and filter are those of 'sokoban'.",
        ),
    ] = None,
    set_: SetOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import trajectories made elsewhere as a run, to query, audit and show; invalid rows go to quarantine."""
    if form not in ("turns", *READERS):
        raise ConfigError(f"'{form}' is not a format to import; formats: turns, {', '.join(READERS)}")
    if form == "turns" and groups is not None:
        raise ConfigError(f"--groups {groups} is for foreign traces; turns contain their groups: leave it out")
    files = [each for file in files for each in iterations_of(file, form)]
    config = load_preset(preset or _APPLIED, parse_overrides(set_))
    importer = Importer(open_store(store), run)
    if form == "turns":
        for file, table in [(file, read_turns(file)) for file in files]:
            importer.take_table(table, file.name)
    else:
        console = Console(stderr=True)
        for file in track(files, "importing", console=console, disable=not console.is_terminal):
            importer.take_traces(file, form, should_keep_groups=groups != "alone")
    for iteration, turns in enumerate(importer.rollouts):
        importer.reuse(iteration, "rollout", turns)
        if importer.are_paid[iteration]:
            reward_and_filter(importer, config, iteration, turns)
    importer.record(preset, config.model_dump(mode="json"), [file.name for file in files], form)
    if as_json:
        is_foreign = form != "turns"
        print_json(
            ImportedRun(
                run=run,
                iterations=len(files),
                turns=importer.num_turns,
                traces=importer.num_traces if is_foreign else None,
                set_aside=importer.num_set_aside if is_foreign else None,
            )
        )
        return
    for line in importer.notes:
        say(Console(), line)
    write(f"run {run}: {len(files)} iterations, {importer.num_turns} turns. Check it: starpo audit {run}")


class Importer(Runner):
    """Runner that stores what was read and carries out stages in this process; it records the run only when complete.

    Attributes:
        rollouts: Kind -> key of the turns of each iteration.
        are_paid: Whether the turns of each iteration have rewards.
        num_turns: Number of rows stored.
        num_traces: Number of traces stored.
        num_set_aside: Number of traces set aside.
        notes: Messages about the latter.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.name, self.store_url, self._store = name, store.url, store
        self._made: list[tuple[int, str, Keys]] = []
        self.rollouts: list[Keys] = []
        self.are_paid: list[bool] = []
        self.num_turns = self.num_traces = self.num_set_aside = 0
        self.notes: list[str] = []

    def take_table(self, table: pa.Table, file: str, *, is_paid: bool = True, has_images: bool = False) -> None:
        """Store an iteration's turns unchanged; `is_paid`: whether they have rewards, `has_images`: with images."""
        beside: dict[str, Callable[[], Iterable[pa.RecordBatch]]] = {}
        if has_images:
            from starpo.ragen.agents.rollout.turn_images import take_images

            table, places, images = take_images(table)
            beside = {"images": images.to_batches, "turn_images": places.to_batches}
        self._take(table.to_batches(), content_digest(table), file, is_paid=is_paid, beside=beside)
        self.num_turns += table.num_rows

    def take_traces(self, file: Path, form: str, *, should_keep_groups: bool) -> None:
        """Store an iteration's traces, and set aside those that cannot be imported.

        Raises:
            DataError: If none is left; those set aside are in quarantine, with the reasons.
        """
        with tempfile.TemporaryDirectory(prefix="ragen-import-") as folder:
            aside = SetAside(Path(folder))
            with Spool(Path(folder, "turns.arrow")) as spool:
                taken = take_in(file, form, spool, aside, should_keep_groups=should_keep_groups)
                self.notes += taken.notes
                digest = content_digest(spool.batches(), TURNS.schema)
                if not taken.num_traces and not aside.num_traces:
                    raise DataError(f"{file}: it contains no trajectory")
                if aside.num_traces:
                    refusal = aside.keep(open_location(self._store.url), digest[:32])
                    if not taken.num_traces:
                        raise refusal
                    self.notes += [*aside.lines(), str(refusal).splitlines()[-1]]
                beside = {"images": spool.images, "turn_images": spool.turn_images} if spool.shows_images else {}
                self._take(spool.batches(), digest, file.name, is_paid=taken.is_paid, beside=beside)
        self.num_traces += taken.num_traces
        self.num_set_aside += aside.num_traces
        self.num_turns += self._store.manifest("turns", self.rollouts[-1]["turns"]).num_rows or 0

    def record(self, preset: str | None, config: dict[str, object], files: list[str], form: str) -> None:
        """Record the run."""
        parameters: dict[str, object] = {"files": files, "turns": [keys["turns"] for keys in self.rollouts]}
        if form != "turns":
            parameters |= {"format": form, "set_aside": self.num_set_aside}
        if unpaid := [iteration for iteration, is_paid in enumerate(self.are_paid) if not is_paid]:
            parameters["unpaid"] = unpaid
        runs = self._store.runs
        runs.create(self.name, flow="import", preset=preset, config=config, parameters=parameters)
        for iteration, name, keys in self._made:
            runs.record_stage(self.name, iteration, name, keys)
        runs.set_state(self.name, "completed", "imported")

    def stage(self, iteration: int, work: Work) -> Keys:
        """Carry out one stage in this process and note its outputs."""
        self.reuse(iteration, work.name, self.unrecorded(iteration, work))
        return work.keys

    def unrecorded(self, iteration: int, work: Work) -> Keys:
        """Carry out one stage in this process."""
        return work.carry_out(self._store)

    def reuse(self, iteration: int, name: str, keys: Keys) -> None:
        """Note keys to be recorded later."""
        self._made.append((iteration, name, keys))

    def _take(
        self,
        batches: Iterable[pa.RecordBatch],
        digest: str,
        file: str,
        *,
        is_paid: bool,
        beside: Mapping[str, Callable[[], Iterable[pa.RecordBatch]]],
    ) -> None:
        settings = {"content": digest}
        if "turn_images" in beside:
            settings["images"] = content_digest(beside["turn_images"](), TURN_IMAGES.schema)

        def do(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
            for kind, read in beside.items():
                yield Output(kind, read(), is_deterministic=False)
            yield Output("turns", batches, provenance={"file": file}, is_deterministic=False)

        self.rollouts.append(Work(STAGE, (*beside, "turns"), do, settings).carry_out(self._store))
        self.are_paid.append(is_paid)
