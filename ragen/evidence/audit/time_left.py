"""`TimeLeft`: the time budget of a query."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from starpo.ragen.core.errors import QueryError

_CTRL_C = "Query interrupted"
"""What DuckDB makes of a KeyboardInterrupt while it runs a query."""


class TimeLeft:
    """Time budget of one query. Only time spent in the database counts, not the processing of its result."""

    def __init__(self, total_s: float) -> None:
        self._total_s = total_s
        self._left_s = total_s

    @contextmanager
    def spent_by(self, connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
        """Interrupt the connection if the block exceeds the remaining time.

        Raises:
            QueryError: If the connection was interrupted.
            KeyboardInterrupt: On Ctrl-C.
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
                    f"the query was stopped after {self._total_s:g} s; select fewer rows or iterations, or give it "
                    "more time: STARPO_SQL_TIMEOUT_S=600 (seconds)"
                ) from error
            if isinstance(error, RuntimeError) and str(error) == _CTRL_C:
                raise KeyboardInterrupt from None
            raise
        finally:
            timer.cancel()
            timer.join()  # a thread that still held the connection as Python ends would have nanobind print a report
            self._left_s -= time.monotonic() - started
