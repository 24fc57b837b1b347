"""Documents of studies: what is known, and what is planned."""

from starpo.flows.console.documents.document import JsonDocument


class GridRow(JsonDocument):
    """A grid."""

    grid: str
    """Its name."""
    about: str
    """What it is."""
    result: bool
    """Whether the store has its result."""


class PlannedRun(JsonDocument):
    """A run of a grid; its stages are stored, new, or shared with an earlier run of the plan."""

    cell: str
    """Label of its settings."""
    seed: int
    """Its seed."""
    run: str
    """Its name."""
    is_finished: bool
    """Whether it is complete."""
    stages: int
    """Stages in all."""
    stored: int
    """Of these, in the store."""
    shared: int
    """Of these, computed once for an earlier run."""
    new: int
    """Of these, to be computed."""


class Undecided(JsonDocument):
    """A metric that decides what comes next, and is not measured yet."""

    metric: str
    """Its name."""
    runs: int
    """Number of runs."""
    first_iteration: int
    """The first iteration where it decides."""


class PlannedAblation(JsonDocument):
    """What a grid would compute."""

    name: str
    """Name of the grid."""
    store: str
    """Address of the store."""
    stages: int
    """Different stages."""
    stored: int
    """Of these, in the store."""
    new: int
    """Of these, to be computed."""
    new_by_stage: dict[str, int]
    """Stage -> how many are new."""
    runs: list[PlannedRun]
    """The runs."""
    decided_by_data: list[Undecided]
    """What the plan had to assume."""
    stops: dict[str, str]
    """Run -> why it stops early."""


class EvaluationRow(JsonDocument):
    """A stored result."""

    evaluation: str
    """Its name, for --result."""


class PlannedPanel(JsonDocument):
    """Cells of a subject on an environment."""

    subject: str
    """Who is evaluated."""
    environment: str
    """On what."""
    checkpoints: int
    """Checkpoints."""
    cells: int
    """Cells in all."""
    stored: int
    """Of these, in the store."""
    missing: int
    """Of these, to be played."""


class PlannedEvaluation(JsonDocument):
    """What an evaluation would play."""

    name: str
    """Name of the result."""
    store: str
    """Address of the store."""
    cells: int
    """Cells in all, of subjects that are known to the store."""
    stored: int
    """Of these, in the store."""
    missing: int
    """Of these, to be played."""
    by_panel: list[PlannedPanel]
    """The same, by subject and environment."""
    to_derive: list[str]
    """Keys of checkpoints that are derived first."""
    waiting: dict[str, str]
    """Run -> checkpoints that it does not have yet."""
    to_begin: dict[str, dict[str, str]]
    """Subject that was never evaluated -> the run that it would be recorded as -> environment."""
    missing_cells: list[str]
    """Labels of the cells to be played."""
