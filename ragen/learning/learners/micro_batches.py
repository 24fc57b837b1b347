"""`MicroBatchRunner`: how micro-batches are run: in which arithmetic, on how many threads, in what order.

On a CPU, micro-batches are run side by side on threads that each compute alone. Results are taken up in the order of
the micro-batches, so they are the same, bit for bit, whatever the number of threads. Torch's own threads would split
each operation instead: their barriers cost more the smaller the model, and far more where cores have other work too.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

import torch

from starpo.ragen.learning.learners.batches import MicroBatch

Result = TypeVar("Result")


class MicroBatchRunner:
    """Runs functions of one micro-batch over many."""

    def __init__(self, device: torch.device, num_threads: int | None, dtype: str) -> None:
        """Prepare.

        Args:
            device: Where the micro-batches lie.
            num_threads: Micro-batches at a time on a CPU. None: as many as torch is set to use. Elsewhere always 1.
            dtype: 'float32', or 'bfloat16' by autocast; weights stay as they are.
        """
        self.device = device
        self.num_threads = (num_threads or torch.get_num_threads()) if device.type == "cpu" else 1
        self.dtype = dtype

    def run(self, function: Callable[[MicroBatch], Result], batches: Sequence[MicroBatch]) -> Iterator[Result]:
        """Apply a function to every micro-batch.

        Args:
            function: Must not write to anything that another call reads. Torch's grad mode is its own business: threads
                begin with gradients enabled.
            batches: What to apply it to.

        Yields:
            Results in the order of `batches`. At most `num_threads` of them are computed ahead, which bounds memory.
        """

        def compute(batch: MicroBatch) -> Result:
            # no cache: it is one for all threads, and would share pieces of their graphs
            is_coarse = self.dtype == "bfloat16"
            with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=is_coarse, cache_enabled=False):
                return function(batch)

        if self.num_threads == 1 or len(batches) == 1:
            yield from map(compute, batches)
            return
        with ThreadPoolExecutor(self.num_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            remaining = iter(batches)
            ahead: deque[Future] = deque(pool.submit(compute, b) for b in islice(remaining, self.num_threads))
            while ahead:
                result = ahead.popleft().result()
                ahead.extend(pool.submit(compute, batch) for batch in islice(remaining, 1))
                yield result

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While in it, torch's operations on a CPU use one thread each; afterwards as many as before."""
        before = torch.get_num_threads()
        if self.device.type == "cpu":
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
