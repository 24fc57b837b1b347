"""A folder that Hugging Face's `datasets` loads, locally or from the Hub: Parquet files and a card that lists them.

    Played -> trajectories/train-*.parquet (messages and metadata), turns/train-*.parquet (all columns of `turns`)

`load_dataset(FOLDER, "trajectories")` yields conversations, `load_dataset(FOLDER, "turns")` also tokens and log-probs;
`ragen import` reads a file of the latter back.
"""

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.ragen.evidence.exchange.messages import message_lines
from starpo.ragen.evidence.exchange.played import Played
from starpo.schemas.datasets import TURNS

_MESSAGE = pa.struct({"role": pa.string(), "content": pa.string(), "weight": pa.int8()})
_TRAJECTORIES = pa.schema(
    {
        "messages": pa.list_(_MESSAGE),
        "trajectory_id": pa.string(),
        "group_id": pa.string(),
        "member": pa.int32(),
        "env": pa.string(),
        "env_seed": pa.int64(),
        "initial_state_digest": pa.string(),
        "iteration": pa.int32(),
        "return": pa.float64(),
        "success": pa.bool_(),
        "kept": pa.bool_(),
        "truncated": pa.bool_(),
        "status": pa.string(),
        "turns": pa.list_(pa.int32()),
        "num_contexts": pa.int32(),
    }
)
_ROWS_AT_ONCE = 4_096


class HubFolder:
    """Writer of trajectories. Use as a context manager."""

    def __init__(self, folder: Path, run: str) -> None:
        """Create the writer; nothing is written yet.

        Args:
            folder: Existing empty folder.
            run: Name of the run.
        """
        self._folder, self._run = folder, run
        self._iteration = -1
        self._writers: dict[Path, pq.ParquetWriter] = {}
        self._waiting: dict[Path, list[dict[str, Any]]] = {}

    def __enter__(self) -> "HubFolder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._close()
        if kind is None:
            (self._folder / "README.md").write_text(_card(self._run), encoding="utf-8")

    def add(self, played: Played) -> None:
        """Write a trajectory; those of an iteration must be consecutive."""
        if played.iteration != self._iteration:
            self._close()
            self._iteration = played.iteration
        name = f"train-{played.iteration:05d}.parquet"
        self._put(self._folder / "trajectories" / name, list(message_lines(played)), _TRAJECTORIES)
        self._put(self._folder / "turns" / name, [dict(row) for row in played.rows], TURNS.schema)

    def _put(self, file: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
        if file not in self._writers:
            file.parent.mkdir(exist_ok=True)
            self._writers[file] = pq.ParquetWriter(file, schema, compression="zstd")
        waiting = self._waiting.setdefault(file, [])
        waiting += rows
        if len(waiting) >= _ROWS_AT_ONCE:
            self._flush(file)

    def _close(self) -> None:
        """Flush and close the files of an iteration."""
        for file, writer in self._writers.items():
            self._flush(file)
            writer.close()
        self._writers = {}

    def _flush(self, file: Path) -> None:
        rows, writer = self._waiting.pop(file, []), self._writers[file]
        if rows:
            writer.write_table(pa.Table.from_pylist(rows, schema=writer.schema))


def _card(run: str) -> str:
    """Return the card: YAML front matter for `datasets`, with JSON values, and a description."""
    configs = [
        {"config_name": "trajectories", "default": True, "data_files": "trajectories/*.parquet"},
        {"config_name": "turns", "data_files": "turns/*.parquet"},
    ]
    facts = {"configs": configs, "pretty_name": f"Trajectories of run {run}"}
    head = "\n".join(f"{name}: {json.dumps(value)}" for name, value in facts.items())
    about = f"Trajectories of run `{run}`, exported by `ragen export`. Texts are a model's: untrusted."
    return f"---\n{head}\n---\n\n{about}\n"
