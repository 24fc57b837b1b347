"""`MicroBatchRunner`: the precision, number of threads and order in which micro-batches are run.

On a CPU, micro-batches run in parallel on threads, with one torch thread each. Results are consumed in the order of the
micro-batches, so they are bitwise identical for any number of threads. Torch's own threads would split each operation
instead: their barriers cost more the smaller the model, and far more on cores that are busy with other work.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from itertools import islice
from typing import TypeVar

import torch

from starpo.ragen.config.device import Device
from starpo.ragen.learning.learners.data.batches import MicroBatch

Result = TypeVar("Result")

WITH_BACKWARD = 3
"""Forward passes that a forward and backward pass over a micro-batch costs."""


class MicroBatchRunner:
    """Applies a function to many micro-batches."""

    def __init__(self, device: Device, num_threads: int | None, dtype: str) -> None:
        """Create a runner.

        Args:
            device: Computes the micro-batches.
            num_threads: Micro-batches that run in parallel on a CPU; None: torch's number. Always 1 on a GPU.
            dtype: 'float32', or 'bfloat16' or 'float16' for autocast; weights keep their dtype.
        """
        self.device = torch.device(device.kind)
        self.num_threads = 1 if device.is_gpu else num_threads or torch.get_num_threads()
        self.dtype = dtype
        self._device = device
        self._on_progress: Callable[[int, int], None] | None = None
        self._num_done = self._num_expected = 0

    def reporting(self, on_progress: Callable[[int, int], None] | None) -> "MicroBatchRunner":
        """Return a runner like this one that calls `on_progress` with (passes done, total) once told to `expect`."""
        runner = copy(self)
        runner._on_progress = on_progress
        return runner

    def expect(self, num_passes: int) -> None:
        """Announce how many passes are still to come; a later announcement replaces an earlier one."""
        self._num_expected = self._num_done + num_passes

    def run(
        self, function: Callable[[MicroBatch], Result], batches: Sequence[MicroBatch], num_passes: int = 1
    ) -> Iterator[Result]:
        """Apply a function to every micro-batch.

        Args:
            function: Must not write to anything that another call reads, and must set torch's grad mode itself:
                threads start with gradients enabled.
            batches: The micro-batches.
            num_passes: Forward passes that the function costs for a micro-batch.

        Yields:
            Results in the order of `batches`. At most `num_threads` are computed ahead, which bounds memory.
        """
        if self.num_threads == 1 or len(batches) == 1:
            for batch in batches:
                with self._precision():
                    result = function(batch)
                self._count(num_passes)
                yield result
            return
        with ThreadPoolExecutor(self.num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            remaining = iter(batches)
            ahead = deque(pool.submit(self._compute, function, b) for b in islice(remaining, self.num_threads))
            while ahead:
                result = ahead.popleft().result()
                ahead.extend(pool.submit(self._compute, function, batch) for batch in islice(remaining, 1))
                self._count(num_passes)
                yield result

    def _count(self, num_passes: int) -> None:
        self._num_done += num_passes
        if self._on_progress is not None and self._num_expected:
            self._on_progress(self._num_done, self._num_expected)

    def _compute(self, function: Callable[[MicroBatch], Result], batch: MicroBatch) -> Result:
        with self._precision():
            return function(batch)

    def _precision(self) -> torch.autocast:
        # no cache: it is shared by all threads, and would mix their graphs
        dtype = getattr(torch, self.dtype)
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype != torch.float32, cache_enabled=False)

    @contextmanager
    def alone(self, num_threads: int = 1) -> Iterator[None]:
        """Context manager: compute what repeats, on a CPU with this number of threads per operation, on a GPU with
        deterministic kernels. What was set before is restored afterwards."""
        before = torch.get_num_threads()
        if not self._device.is_gpu:
            torch.set_num_threads(num_threads)
        try:
            with self._device.repeating():
                yield
        finally:
            torch.set_num_threads(before)
