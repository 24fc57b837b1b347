"""Passes in parallel: order of results, bounded work ahead, and threads that leave no trace."""

import threading
import time

import pytest
import torch

from starpo.ragen.config.device import Device
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner

CPU = Device()


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_results_keep_batch_order(num_threads):
    def slow_first(number):
        time.sleep(0.02 if number == 0 else 0)
        return number * 10

    assert list(MicroBatchRunner(CPU, num_threads, "float32").run(slow_first, range(7))) == [0, 10, 20, 30, 40, 50, 60]


def test_lookahead_is_limited_by_threads():
    started: list[int] = []
    results = MicroBatchRunner(CPU, 2, "float32").run(lambda number: started.append(number) or number, range(10))
    assert next(results) == 0
    time.sleep(0.05)
    assert len(started) <= 3  # the one taken, and two ahead
    results.close()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_workers_are_single_threaded_in_dtype(dtype):
    threads = set()

    def look(_):
        time.sleep(0.01)
        threads.add((threading.get_ident(), torch.get_num_threads()))
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype

    assert set(MicroBatchRunner(CPU, 2, dtype).run(look, range(6))) == {getattr(torch, dtype)}
    assert {count for _, count in threads} == {1}
    assert len(threads) == 2


def test_num_threads_is_restored_after_error():
    def fail_alone():
        with MicroBatchRunner(CPU, 2, "float32").alone():
            assert torch.get_num_threads() == 1
            raise KeyError

    before = torch.get_num_threads()
    with pytest.raises(KeyError):
        fail_alone()
    assert torch.get_num_threads() == before


def test_passes_are_reported_once_total_known():
    reports = []
    quiet = MicroBatchRunner(CPU, 2, "float32")
    runner = quiet.reporting(lambda *progress: reports.append(progress))
    list(runner.run(str, range(2)))
    assert reports == []
    runner.expect(5)  # after 2
    list(runner.run(str, range(2)))
    list(runner.run(str, range(1), num_passes=3))
    assert reports == [(3, 7), (4, 7), (7, 7)]
    list(quiet.run(str, range(2)))
    assert len(reports) == 3


def test_batch_error_reaches_the_caller():
    def fail(number):
        if number == 3:
            raise ValueError("batch 3")
        return number

    with pytest.raises(ValueError, match="batch 3"):
        list(MicroBatchRunner(CPU, 2, "float32").run(fail, range(6)))
