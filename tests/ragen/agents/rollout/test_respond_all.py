"""Responses given to several episodes: steps that wait for a server wait together, the others do not."""

import threading
from types import SimpleNamespace

import pytest

from starpo.ragen.agents.rollout.loop import respond_all
from starpo.ragen.core.errors import CallLimitError


class WaitingEpisode:
    """Stands for an episode whose step waits until three steps are waiting."""

    def __init__(self, max_concurrent_steps: int, barrier: threading.Barrier) -> None:
        self.max_concurrent_steps, self.barrier, self.responses = max_concurrent_steps, barrier, []

    def respond(self, response: int, text: str) -> None:
        if self.max_concurrent_steps > 1:
            self.barrier.wait()
        self.responses.append((response, text, threading.current_thread() is threading.main_thread()))


def test_steps_that_wait_are_concurrent() -> None:
    barrier = threading.Barrier(3, timeout=20)
    episodes = [WaitingEpisode(number, barrier) for number in (3, 1, 3, 3)]
    respond_all([(episode, index, f"text {index}") for index, episode in enumerate(episodes)])
    assert [episode.responses for episode in episodes] == [
        [(index, f"text {index}", index == 1)] for index in range(4)
    ]  # fmt: skip


def test_concurrent_step_that_raises_ends_all() -> None:
    def fail(response: int, text: str) -> None:
        raise CallLimitError("too long")

    episodes = [SimpleNamespace(max_concurrent_steps=2, respond=fail) for _ in range(2)]
    with pytest.raises(CallLimitError, match="too long"):
        respond_all([(episode, 0, "") for episode in episodes])
