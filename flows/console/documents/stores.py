"""Documents on stores, on what enters and leaves them, and on files that are installed."""

from starpo.flows.console.documents.document import JsonDocument
from starpo.ragen.store.keeping.integrity import Damage
from starpo.ragen.store.keeping.usage import KindUsage, RunUsage


class Amount(JsonDocument):
    """A number of artifacts, and their size."""

    number: int
    """How many."""
    size_bytes: int
    """Their size."""


class KindAmount(Amount):
    """The same, of one kind."""

    kind: str
    """Their kind."""


class DeletedGarbage(JsonDocument):
    """What was or would be deleted, and what is kept."""

    store: str
    """Address of the store."""
    dry_run: bool
    """Whether nothing was deleted."""
    deleted: list[KindAmount]
    """What was, or would be."""
    total: Amount
    """All of it."""
    folders: list[str]
    """Where it is."""
    kept: Amount
    """What runs need."""
    young: Amount
    """What no run needs, but is too young."""
    quarantined: Amount
    """What is in quarantine, and stays."""
    dropped: list[str]
    """What runs refer to, is not kept and can be rebuilt."""
    faults: list[str]
    """What runs need and is missing or damaged."""
    running: list[str]
    """Active runs."""


class ForgottenRun(JsonDocument):
    """A run whose records were deleted."""

    run: str
    """Its name."""
    store: str
    """Address of the store."""


class StoreUsage(JsonDocument):
    """What takes up space."""

    store: str
    """Address of the store."""
    size_bytes: int
    """All of it."""
    kinds: list[KindUsage]
    """By kind."""
    runs: list[RunUsage]
    """By run; runs share."""
    damaged: dict[str, str]
    """Run -> what is wrong with its records."""


class StoreIntegrity(JsonDocument):
    """Whether a store holds what was written to it."""

    store: str
    """Address of the store."""
    num_artifacts: int
    """Artifacts read."""
    size_bytes: int
    """Their size."""
    damages: list[Damage]
    """What is damaged; any means exit code 1."""


class CopiedRun(JsonDocument):
    """A run that was copied."""

    store: str
    """Address of the other store."""
    run: str
    """Its name."""
    num_copied: int
    """Artifacts copied now."""
    bytes_copied: int
    """Their size."""
    num_present: int
    """Artifacts that were there."""
    bytes_present: int
    """Their size."""
    num_dropped: int
    """Artifacts that are not kept and can be rebuilt."""
    is_running: bool
    """Whether it still runs: copy it again later."""


class ImportedRun(JsonDocument):
    """A run made of trajectories from elsewhere."""

    run: str
    """Its name."""
    iterations: int
    """Its iterations."""
    turns: int
    """Turns stored."""
    traces: int | None = None
    """Of other formats than turns: traces stored."""
    set_aside: int | None = None
    """Likewise: traces that could not be read, in quarantine with the reason."""


class ExportedRun(JsonDocument):
    """Trajectories that were written."""

    run: str
    """Name of the run."""
    format: str
    """Their format."""
    folder: str
    """Where they are."""
    num_trajectories: int
    """Trajectories read."""
    num_chosen: int
    """Of these, chosen by --where."""
    num_written: int
    """Lines or documents written."""
    iterations: list[int]
    """Iterations that they are from."""
    reused: list[int]
    """Iterations left out, as their rollout was written before."""


class RecordedRun(JsonDocument):
    """Episodes of a program that were kept."""

    run: str
    """Name of the run."""
    episodes: int
    """Episodes played."""
    failed: int
    """Of these, ended by a fault of the program."""
    turns: int
    """Turns stored."""
    server_errors: int | None = None
    """With --protocol chat: requests that failed."""


class InstalledSkill(JsonDocument):
    """A skill that was copied."""

    files: list[str]
    """Its files."""
    new: list[str]
    """Of these, those that were written now; the others were there, as shipped."""
