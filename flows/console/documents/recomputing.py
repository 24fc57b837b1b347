"""Documents of what was computed again, and compared."""

from typing import Any, Literal

from starpo.flows.console.documents.document import JsonDocument
from starpo.flows.console.documents.runs import SettingChange
from starpo.ragen.runs.verify.verdict import CheckResult


class VerifiedRun(JsonDocument):
    """Whether a run's stored results are what its settings, inputs and seeds give."""

    run: str
    """Name of the run."""
    findings: list[CheckResult]
    """A check of a stage of an iteration each. same: recomputed, and equal. different: it is not. damaged: missing, or
    not as it was written. not shown: undecided, `detail` says why."""
    iterations: list[int]
    """Iterations verified."""
    seconds: float
    """Duration."""
    num_iterations: int
    """How many they are."""
    outcome: Literal["verified", "faults", "not shown"]
    """verified: all same. faults: any different or damaged. not shown: neither, but not everything was decided."""
    exit_code: Literal[0, 1, 3]
    """The command's: 0, 1, 3 for these outcomes."""
    is_faultless: bool
    """Whether nothing is different or damaged."""


class Interval(JsonDocument):
    """Success with its interval."""

    success: float
    """Share of the episodes that reached the goal."""
    low: float
    """Lower end."""
    high: float
    """Upper end."""


class ReplayDifference(JsonDocument):
    """The branch's success minus the base's, paired by initial state."""

    mean: float
    """Mean over pairs."""
    low: float
    """Lower end of its interval."""
    high: float
    """Upper end."""
    num_prompts: int
    """Number of pairs."""


class ReplayedRun(JsonDocument):
    """Reward, filter and update over stored rollouts, with other settings, beside the run's own."""

    run: str
    """Name of the replay."""
    base: str
    """Run whose rollouts they are."""
    start: int
    """First checkpoint."""
    stop: int
    """Last checkpoint."""
    changed: dict[str, SettingChange]
    """Setting -> its values."""
    should_update: bool | None = None
    """False if only reward and filter were replayed."""
    iterations: list[dict[str, Any]]
    """`iteration`, and each number of the comparison: of both, of `base/` and of `branch/`."""
    evaluation: dict[str, Interval]
    """base, branch -> success; empty without --evaluate."""
    difference: ReplayDifference | None
    """Of the two; null if not both were evaluated."""


class CheckpointRow(JsonDocument):
    """A checkpoint of a run."""

    number: int
    """Iterations before it; 0 is the first."""
    key: str
    """Its key."""
    state: Literal["kept", "dropped", "missing"]
    """Whether it is stored."""
    obstacle: str | None
    """Why it cannot be derived; null if it is kept or can be."""
    size_bytes: int | None
    """Size of its files."""
    digest: str | None
    """Digest of its content."""
    is_available: bool
    """Whether `--iteration` gives it."""


class RepeatedUpdate(JsonDocument):
    """An update that was repeated."""

    iteration: int | None
    """Its iteration."""
    digest: str
    """Digest of the checkpoint that it gave."""
    proof: Literal["checkpoint", "samples", "none"]
    """What shows that it is the original."""


class CheckpointFolder(JsonDocument):
    """A checkpoint as a folder."""

    run: str
    """Name of the run."""
    iteration: int
    """Iterations before it."""
    key: str
    """Its key."""
    how: Literal["kept", "derived"]
    """Whether it was stored, or derived by repeating updates."""
    digest: str | None
    """Digest of its content."""
    folder: str
    """Where it is."""
    from_iteration: int | None = None
    """Derived: the checkpoint that it was derived from."""
    from_key: str | None = None
    """Derived: the key of that."""
    updates: list[RepeatedUpdate] | None = None
    """Derived: what was repeated."""
    seconds: float | None = None
    """Derived: duration."""
    original_digest: str | None = None
    """Derived: digest that was recorded."""
    proof: Literal["checkpoint", "samples", "none"] | None = None
    """Derived: what shows that it is the original; none: nothing does."""
    num_initial_states: int | None = None
    """With --output: initial states of its training that stand beside it."""
    training_unknown: str | None = None
    """With --output: why not all of them are known."""
