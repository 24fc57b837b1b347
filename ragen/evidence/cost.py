"""What a run cost: hours of machine, and the tokens that were sampled and trained on, from its manifests.

runs/<run> + manifests + Parquet footers of `turns` -> Cost -> sentences

What the run reused was made by another run, or before it was begun, and is counted apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq

from starpo.ragen.core.counts import counted, duration
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.evidence.reading import Place, Reader, places, side_by_side
from starpo.ragen.evidence.times import first_uses, stage_seconds
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunRecord
from starpo.schemas.manifest import Manifest


@dataclass(frozen=True)
class Throughput:
    """Tokens that stages of one kind processed, and their time.

    Attributes:
        tokens: Number of tokens.
        seconds: Wall-clock seconds of the stages.
    """

    tokens: int
    seconds: float

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second; None without time."""
        return self.tokens / self.seconds if self.seconds else None


@dataclass(frozen=True)
class Cost:
    """What a run cost. Stages may run concurrently, so that their seconds may exceed the hours by the clock.

    Attributes:
        machines: Machine -> seconds of the stages that this run carried out there.
        played: Response tokens sampled by its own rollouts, evaluations not counted.
        trained: Response tokens that its own updates learned from, once for each epoch.
        reused_seconds: Seconds of the stages that it reused.
        num_reused: Number of these stages.
    """

    machines: dict[str, float]
    played: Throughput
    trained: Throughput
    reused_seconds: float
    num_reused: int

    @property
    def facts(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "machine_seconds": self.machines,
            **{
                name: {"tokens": work.tokens, "seconds": work.seconds, "tokens_per_s": work.tokens_per_s}
                for name, work in (("played", self.played), ("trained", self.trained))
            },
            "reused_seconds": self.reused_seconds,
            "num_reused_stages": self.num_reused,
        }

    @property
    def named(self) -> list[tuple[str, str]]:
        """Names and values for people: work by machine, tokens, what was reused; those that are 0 are left out."""
        rows = [("Work in stages", f"{duration(seconds)} on {machine}") for machine, seconds in self.machines.items()]
        rows += [
            (f"Tokens {what}", f"{work.tokens:,} ({work.tokens_per_s:,.0f} per second of {stage})")
            for work, what, stage in ((self.played, "played", "rollout"), (self.trained, "trained", "update"))
            if work.tokens and work.tokens_per_s is not None
        ]
        if self.num_reused:
            stages = counted(self.num_reused, "stage")
            rows.append(("Reused, not counted", f"{stages} of other runs, {duration(self.reused_seconds)}"))
        return rows


def manifests_of(store: Store, record: RunRecord) -> dict[Place, Manifest]:
    """Read the manifests of all readable artifacts of a run."""
    reader = Reader(store)
    return reader.manifests(places(reader.iterations(record)))


def cost(reader: Reader, run: RunRecord, manifests: Mapping[Place, Manifest]) -> Cost:
    """Return what a run with these manifests cost."""
    begun = run.created.isoformat()  # both are in UTC, so that they sort as text
    first = first_uses(manifests)
    written = {
        place: manifest for place, manifest in first.items() if manifest.provenance.get("written_at", "") >= begun
    }
    reused = {place: manifest for place, manifest in first.items() if place not in written}
    machines: dict[str, float] = {}
    by_machine: dict[tuple[str, int], dict[Place, Manifest]] = {}
    for place, manifest in written.items():
        by_machine.setdefault(_machine(manifest), {})[place] = manifest
    for machine, there in by_machine.items():
        seconds = sum(sum(series.values()) for series in stage_seconds(there).values())
        machines[_named(machine, there)] = machines.get(_named(machine, there), 0.0) + seconds
    turns = [place for place in written if place.kind == "turns"]
    updates = {
        place: manifest for place, manifest in written.items() if (place.stage, place.kind) == ("update", "checkpoint")
    }
    of_reused = stage_seconds(reused)
    return Cost(
        machines=dict(sorted(machines.items(), key=lambda item: -item[1])),
        played=Throughput(
            sum(side_by_side(reader.store, lambda place: _num_played(reader, written[place]), turns)),
            _seconds(written, turns),
        ),
        trained=Throughput(sum(map(_num_trained, updates.values())), _seconds(written, updates)),
        reused_seconds=sum(sum(series.values()) for series in of_reused.values()),
        num_reused=sum(map(len, of_reused.values())),
    )


def in_words(seconds: Mapping[str, float]) -> str:
    """Format the seconds of a run, and those of its kinds of work."""
    parts = ", ".join(f"{what} {duration(of)}" for what, of in seconds.items() if of)
    return f"{duration(sum(seconds.values()))} ({parts})"


def _machine(manifest: Manifest) -> tuple[str, int]:
    hardware = manifest.provenance.get("hardware") or {}
    return str(hardware.get("cpu") or hardware.get("machine") or "an unknown machine"), hardware.get("cpus") or 0


def _named(machine: tuple[str, int], manifests: Mapping[Place, Manifest]) -> str:
    """Name a machine; a stage that did not load torch does not know of its GPUs."""
    cpu, num_cores = machine
    name = f"{counted(num_cores, 'core')} of {cpu}" if num_cores else cpu
    for manifest in manifests.values():
        hardware = manifest.provenance.get("hardware") or {}
        if "gpu" in hardware:
            return f"{hardware.get('gpus', 1)} x {hardware['gpu']}, {name}"
    return name


def _num_played(reader: Reader, turns: Manifest) -> int:
    return reader.kept(("num_tokens", turns.key), lambda: _num_tokens(reader.store, turns)) or 0


def _num_tokens(store: Store, turns: Manifest) -> int | None:
    """Count the response tokens of a dataset `turns` from the footers of its files; None if they cannot be read."""
    total = 0
    try:
        for part in store.parts_of(turns):
            metadata = pq.read_metadata(part)
            columns = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
            column = next(index for index, path in enumerate(columns) if path.startswith("response_ids."))
            for group in range(metadata.num_row_groups):
                chunk = metadata.row_group(group).column(column)
                total += chunk.statistics.num_values if chunk.is_stats_set else chunk.num_values
    except StarPOError:
        return None
    return total


def _num_trained(manifest: Manifest) -> int:
    return int(manifest.headline.get("update/num_tokens", 0)) * int(manifest.settings.get("num_epochs", 1))


def _seconds(manifests: Mapping[Place, Manifest], of: Any) -> float:
    return sum(float(manifests[place].provenance.get("seconds", 0.0)) for place in of)
