"""The end of a run by its own record, for when Prefect does not hear of it.

A run's process tells Prefect how it ended. If Prefect cannot write that down, such as on a full disk, its server keeps
answering that the run is unfinished; the run's `state.json` and lease tell that nobody works on it any more.
"""

import time

from starpo.flows.outcome import Outcome
from starpo.ragen.store.records.run import RunState
from starpo.ragen.store.records.runs import Runs

SILENCE_S = 60.0
"""Seconds for which a run must be over, by its record, before Prefect is no longer waited for."""


class SecondWitness:
    """Tells how runs ended, if Prefect has not told it by then.

    Attributes:
        has_told: Whether it has returned an outcome.
    """

    def __init__(self, runs: Runs, earlier: RunState | None) -> None:
        """Create it before the flow run starts; `earlier`: the state of a run that is continued."""
        self._runs, self._earlier = runs, earlier
        self._over: tuple[str, RunState] | None = None
        self._since = 0.0
        self.has_told = False

    @property
    def knows_end(self) -> bool:
        """Whether the run was over, by its record, when it was last asked."""
        return self._over is not None

    def outcome(self, run: str) -> Outcome | None:
        """Return how a run ended that has been over for `SILENCE_S`, to be asked while it is unfinished for Prefect;
        None before that, and while the run has not begun."""
        is_running, state = self._runs.is_running(run), self._runs.state(run)
        if is_running or state is None or state == self._earlier:
            self._over = None
            return None
        if self._over != (run, state):
            self._over, self._since = (run, state), time.monotonic()
        if time.monotonic() - self._since < SILENCE_S:
            return None
        self.has_told = True
        if state.status == "running":
            return Outcome("interrupted", f"its process has ended, at '{state.message}'. {ADVICE}")
        return Outcome(state.status, f"{state.message}. {ADVICE}")


ADVICE = (
    "This is what the store says; Prefect, which was waited for, still shows the run as unfinished: "
    "its database may be on a full disk, or busy. Its log is server.log in the state folder (STARPO_STATE_DIR, var); "
    "free some space, then `starpo down` and the next command restart it"
)
