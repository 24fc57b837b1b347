"""What a run says about itself while it works: `state.json` beside its records, for people and for `ragen follow`."""

import time
from dataclasses import dataclass, field
from typing import Any

from ragen.store import Store


@dataclass
class RunProgress:
    """Writes a run's state; cheap, at most about twice a second unless something ended.

    Attributes:
        store_url: The store.
        run: The run's name.
    """

    store_url: str
    run: str
    _facts: dict[str, Any] = field(default_factory=dict)
    _last_write: float = 0.0

    def say(self, message: str, **facts: Any) -> None:
        """Write the state now: a sentence, and facts that stay until they are said anew."""
        self._facts.update(facts)
        self._facts["message"] = message
        self._write("running")

    def part(self, done: int, total: int) -> None:
        """Part of the present stage is done."""
        if done < total and time.monotonic() - self._last_write < 0.5:
            return
        self._facts["fraction"] = done / total
        self._write("running")

    def end(self, state: str, message: str) -> None:
        """The run ended: completed or failed."""
        self._facts["message"] = message
        self._write(state)

    def _write(self, state: str) -> None:
        self._last_write = time.monotonic()
        facts = dict(self._facts)
        Store(self.store_url).runs.set_state(self.run, state, facts.pop("message", ""), facts)
