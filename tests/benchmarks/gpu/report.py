"""Figures of one part, on disk as soon as they are measured, so that a part that is stopped leaves those it has."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Figure:
    """A line of the table.

    Attributes:
        part: Part that measured it.
        what: What was measured.
        value: A number, text, or the digest of a result that should repeat.
        unit: Unit of a number; 'digest' for a digest; 'left out' if the value says why it was not measured.
    """

    part: str
    what: str
    value: float | str
    unit: str = ""


class Report:
    """Appends the figures of a part to a file, a line of JSON each."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, what: str, value: float | str, unit: str = "") -> None:
        """Append a figure."""
        figure = Figure(self._path.stem, what, value, unit)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(figure)) + "\n")
        print(f"{figure.what}: {figure.value} {figure.unit}", flush=True)

    def add_bytes(self, what: str, chunks: Iterable[bytes]) -> None:
        """Append the digest of a result that should repeat, here and in other parts under the same name."""
        digest = hashlib.sha256()
        for chunk in chunks:
            digest.update(chunk)
        self.add(what, digest.hexdigest()[:16], "digest")

    def add_peak_memory(self, what: str) -> None:
        """Append the most GPU memory that torch has had since the last such figure; on a CPU it is left out."""
        if not torch.cuda.is_available():
            self.add(f"{what}, peak memory", "needs CUDA", "left out")
            return
        self.add(f"{what}, peak memory", round(torch.cuda.max_memory_allocated() / 2**30, 1), "GiB")
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def read_figures(folder: Path, part: str) -> list[Figure]:
    """Return what a part has measured."""
    path = folder / f"{part}.jsonl"
    return [Figure(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
