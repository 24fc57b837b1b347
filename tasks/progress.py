"""What a run says about itself while it works: its state in the store, for people and for `ragen follow`."""

import time
from dataclasses import dataclass, field

from ragen.store import Store
from ragen.store.runs import RunStatus


@dataclass
class RunProgress:
    """Writes a run's state, at most about twice a second while a stage works.

    Attributes:
        store_url: The store.
        run: The run's name.
    """

    store_url: str
    run: str
    _message: str = ""
    _facts: dict[str, float] = field(default_factory=dict)
    _last_write: float = 0.0

    def say(self, message: str, **facts: float | None) -> None:
        """Write the state: a sentence, and numbers that stay until they are said anew; None takes one back."""
        self._message = message
        self._facts |= {name: value for name, value in facts.items() if value is not None}
        for name in (name for name, value in facts.items() if value is None):
            self._facts.pop(name, None)
        self._write("running")

    def part(self, done: int, total: int) -> None:
        """Part of the present stage is done."""
        if done < total and time.monotonic() - self._last_write < 0.5:
            return
        self._facts["fraction"] = done / total
        self._write("running")

    def end(self, status: RunStatus, message: str) -> None:
        """The run ended."""
        self._message = message
        self._facts.pop("fraction", None)
        self._write(status)

    def _write(self, status: RunStatus) -> None:
        self._last_write = time.monotonic()
        Store(self.store_url).runs.set_state(self.run, status, self._message, self._facts)
