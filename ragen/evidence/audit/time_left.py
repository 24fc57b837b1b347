"""`TimeLeft`: how long a question may still keep the database busy."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from starpo.ragen.core.errors import QueryError


class TimeLeft:
    """The time of one question. What is done with its answer meanwhile does not count."""

    def __init__(self, total_s: float) -> None:
        self._total_s = total_s
        self._left_s = total_s

    @contextmanager
    def spent_by(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Interrupt what this connection does in the block once the time is up.

        Raises:
            QueryError: If it was.
        """
        interrupted = threading.Event()

        def interrupt() -> None:
            interrupted.set()
            connection.interrupt()

        timer = threading.Timer(max(0.0, self._left_s), interrupt)
        timer.daemon = True
        started = time.monotonic()
        timer.start()
        try:
            yield
        except Exception as error:
            if interrupted.is_set() and not isinstance(error, StopIteration):
                raise QueryError(
                    f"the question was stopped after {self._total_s:g} s; ask for fewer rows or iterations, or give it "
                    "more time: RAGEN_SQL_TIMEOUT_S=600, in seconds"
                ) from error
            raise
        finally:
            timer.cancel()
            self._left_s -= time.monotonic() - started
