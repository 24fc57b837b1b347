"""Documents of what was measured on stored runs: their collapse, their objectives, their differences."""

from typing import Any, Literal

from starpo.flows.console.documents.credit import ComparedEstimators
from starpo.flows.console.documents.document import JsonDocument
from starpo.flows.console.documents.runs import RunFacts
from starpo.ragen.evidence.diagnostics.plane import Point
from starpo.ragen.learning.control.collapse import Signal
from starpo.ragen.learning.true_credit.summary import Summary
from starpo.ragen.studies.scores import Comparison


class DiagnosedRun(JsonDocument):
    """Whether a run is collapsing."""

    run: str
    """Its name."""
    status: Literal["healthy", "warning", "stalled", "collapsing", "collapsed"]
    """Verdict at its last iteration."""
    signals: list[Signal]
    """All signals ever raised, the first first."""
    halved_at: int | None
    """Iteration at which training success had halved for good, in hindsight; null if it did not."""
    probes: list[Point]
    """Whether reasoning depends on the prompt, by probe."""
    reasoning: dict[str, dict[int, float]]
    """Metric -> iteration -> value."""
    gradients: dict[int, dict[int, dict[str, float]]]
    """Iteration -> bucket of groups by their reward std -> metric -> value."""
    num_computed: int
    """Stages computed and stored for this."""
    num_failed: int
    """Stages that could not be; any means exit code 1."""
    not_computed: dict[str, int]
    """Why -> how many."""


class Objectives(JsonDocument):
    """Gradients that objectives would have had on one stored update."""

    run: str
    """Name of the run."""
    iteration: int
    """Iteration of the update."""
    objectives: dict[str, dict[str, float]]
    """Objective (`run`: the run's own) -> norm, num_groups, signal_to_noise; absent where undefined."""
    cosines: dict[str, dict[str, float]]
    """Objective -> objective -> cosine of their gradients."""
    left_out: dict[str, str]
    """Objective -> why it could not be measured."""
    kept: dict[str, list[str]]
    """Objective -> settings of it that differ from those of the stored data."""


class CreditedTurn(JsonDocument):
    """A turn, and what it changed."""

    trajectory_id: str
    """Its trajectory."""
    turn: int
    """Its index there."""
    state: str
    """Digest of what decides how play continues before it."""
    actions: list[str]
    """The actions that were executed."""
    num_continuations: int
    """Continuations played from before it."""
    value: float
    """Mean return of these."""
    value_se: float
    """Its standard error."""
    success: float
    """Share of these that succeed."""
    value_after: float
    """Value before the next turn; 0 where the episode ended."""
    reward: float
    """Reward of the turn."""
    advantage: float
    """reward + value_after - value."""
    advantage_se: float
    """Its standard error."""
    solver_change: float | None
    """The same with the solver's values; null without a solver."""


class Credits(JsonDocument):
    """The true credit of turns of a stored rollout, by continuations."""

    run: str
    """Name of the run."""
    iteration: int
    """Iteration of the rollout."""
    artifact: str
    """Key of the artifact `credits`."""
    summary: Summary
    """Totals, and the values beside the rollout."""
    seconds: float
    """Of playing."""
    note: str
    """What was not done, and why; empty if all was."""
    turns: list[CreditedTurn]
    """All credited turns, the largest advantages, of either sign, first."""
    comparison: ComparedEstimators | None
    """What estimators say of these turns; null if they are not compared."""
    not_compared: str
    """Why not; empty if they are."""


class RunBeside(RunFacts):
    """A run beside the first one."""

    success_best: float | None
    """Highest success of its evaluations."""
    difference: Comparison | None
    """Last success minus that of the first run, over initial states; null for the first run, or if not compared."""
    words: str
    """What the difference comes to, or why there is none."""


class ComparedRuns(JsonDocument):
    """Runs beside each other."""

    runs: list[RunBeside]
    """In the order given; the first is what the others are compared with."""
    settings: dict[str, dict[str, Any]]
    """Setting that differs -> run -> its value; a run that does not have the setting is left out."""
