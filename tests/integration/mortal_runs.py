"""Runs that can be killed at any moment: a process that has imported everything forks a new one for each (re)start.

    test --order--> this process --fork--> a run, which kills itself at a moment in the store, or is killed from outside

A moment is an operation on the store's files: before a folder or file is created, opened for writing, renamed or
removed; halfway through writing a file; and after writing it. Writes of state.json, which only people read, and of the
lease do not count: they happen at every start, so a run could be killed there forever without making progress.

Orders and answers are lines of JSON. An order has `store`; `overrides` of the preset; `after`, the number of artifacts
from which moments count; and `fatal`, the number of the fatal moment per sort, 'any' or 'inside' a file. Not a test:
`test_killed_anywhere.py` starts it as `python mortal_runs.py`.
"""

import atexit
import importlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
IMPORTS = (
    "starpo.flows.starpo", "starpo.ragen.runs.placement", "starpo.ragen.learning.imitation",
    "starpo.ragen.learning.learners.torch_learner", "starpo.ragen.learning.learners.data.trajectories",
    "starpo.ragen.agents.rollout.torch.engine", "starpo.ragen.agents.rollout.shards",
    "starpo.ragen.envs.sokoban.demonstrations",
    "transformers.models.qwen2.modeling_qwen2", "pyarrow.parquet", "polars",
)  # fmt: skip


class Moments:
    """Counter of the moments of this process, which kills the process at the fatal one."""

    def __init__(self, order: dict[str, Any], say: Callable[..., None]) -> None:
        self._store, self._after, self._fatal, self._say = order["store"], order["after"], order["fatal"], say
        self._counts = {"any": 0, "inside": 0}
        sys.addaudithook(self._audit)
        self._split_writes()
        self._tell_of_work()

    @property
    def is_late_enough(self) -> bool:
        artifacts = {
            path.parent for name in ("manifest", "dropped") for path in Path(self._store).glob(f"*/*/{name}.json")
        }
        return len(artifacts) >= self._after

    def pass_by(self, operation: str, path: Any, is_inside: bool = False) -> None:
        """Count this operation if it is a moment."""
        if not (self._fatal and self._is_of_store(path) and self.is_late_enough):
            return
        for sort in ("any", "inside") if is_inside else ("any",):
            self._counts[sort] += 1
            if self._counts[sort] == self._fatal.get(sort):
                self._say(died=operation, path=os.path.relpath(str(path), self._store))
                os.kill(os.getpid(), signal.SIGKILL)

    def _is_of_store(self, path: Any) -> bool:
        text = str(path)
        return text.startswith(self._store) and "state.json" not in text and "/leases" not in text

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.rename", "os.remove", "os.rmdir", "os.mkdir"):
            if event != "os.mkdir" or not Path(arguments[0]).exists():
                self.pass_by(event, arguments[0])
        elif event == "open" and isinstance(arguments[0], str) and (arguments[2] or 0) & WRITING:
            self.pass_by("open for writing", arguments[0])

    def _split_writes(self) -> None:
        """Add a moment halfway through every file's bytes and one after them, however the file is written."""
        import pyarrow.parquet as pq

        write_bytes, write_text, copy = Path.write_bytes, Path.write_text, shutil.copyfile
        write_batch, close = pq.ParquetWriter.write_batch, pq.ParquetWriter.close

        def in_halves(path: Path, data: bytes) -> int:
            if not self._is_of_store(path):
                return write_bytes(path, data)
            with path.open("wb") as file:
                file.write(data[: len(data) // 2])
                file.flush()
                self.pass_by("half of the bytes written", path, is_inside=True)
                file.write(data[len(data) // 2 :])
            self.pass_by("all bytes written", path)
            return len(data)

        def text_in_halves(path: Path, data: str, *arguments: Any, **settings: Any) -> int:
            if not self._is_of_store(path):
                return write_text(path, data, *arguments, **settings)
            return in_halves(path, data.encode())

        def copy_in_halves(source: Any, target: Any, **settings: Any) -> Any:
            if not self._is_of_store(target):
                return copy(source, target, **settings)
            in_halves(Path(target), Path(source).read_bytes())
            return target

        def rows_and_no_footer(writer: Any, *arguments: Any, **settings: Any) -> None:
            write_batch(writer, *arguments, **settings)
            self.pass_by("Parquet without a footer", writer.where, is_inside=True)

        def rows_and_footer(writer: Any) -> None:
            close(writer)
            self.pass_by("Parquet written", writer.where)

        Path.write_bytes, Path.write_text, shutil.copyfile = in_halves, text_in_halves, copy_in_halves
        pq.ParquetWriter.write_batch, pq.ParquetWriter.close = rows_and_no_footer, rows_and_footer

    def _tell_of_work(self) -> None:
        """Report when a stage that is not stored yet begins to compute."""
        from starpo.ragen.runs.placement import ModelPlacement
        from starpo.ragen.runs.work import Keys, Work
        from starpo.ragen.store import Store

        carry_out = Work.carry_out

        def carry_out_aloud(work: Work, store: Store, placement: ModelPlacement | None = None) -> Keys:
            if not work.is_stored(store) and self.is_late_enough:
                self._say(begun=work.stage.name, key=work.key)
            return carry_out(work, store, placement)

        Work.carry_out = carry_out_aloud  # type: ignore[method-assign]


def serve() -> None:
    """Import everything, then fork a run of the smoke preset for every order, one at a time."""
    for name in IMPORTS:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

    def say(**facts: Any) -> None:
        answers.write(json.dumps(facts) + "\n")
        answers.flush()

    say(is_ready=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                from starpo.flows.starpo import starpo

                order = json.loads(line)
                Moments(order, say)
                starpo(preset="smoke", overrides=order["overrides"], store=order["store"], run="mortal")
                atexit._run_exitfuncs()
            except BaseException as error:
                say(error=f"{type(error).__name__}: {error}")
                os._exit(1)
            os._exit(0)
        say(process=child)
        _, status = os.waitpid(child, 0)
        say(status=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    serve()
