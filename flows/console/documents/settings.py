"""Documents on what can be chosen: presets, environments, these documents; and files that are written as a start."""

from starpo.flows.console.documents.document import JsonDocument


class PresetRow(JsonDocument):
    """A preset."""

    preset: str
    """Its name."""
    environment: str = ""
    """Type of its environment; empty for one that is only extended."""
    policy: str = ""
    """tiny or pretrained; empty likewise."""
    iterations: int | None = None
    """Number of iterations; null likewise."""
    about: str
    """What it is."""


class MethodRow(JsonDocument):
    """Settings of a method."""

    method: str
    """Its name, for --method."""
    about: str
    """What it is."""


class EnvironmentRow(JsonDocument):
    """A variant of an environment."""

    name: str
    """For `starpo play` and `--on`."""
    type: str
    """For `environment.type`."""
    about: str
    """What it is."""
    replayable: bool | None = None
    """With --check: whether episodes can be replayed; null if it was not checked."""
    replay_fault: str | None = None
    """With --check: why not."""
    findings: list[str] | None = None
    """With --check: faults of the environment; any means exit code 1."""


class WrittenFiles(JsonDocument):
    """Files that were written as a start."""

    files: list[str]
    """The files."""
    notes: list[str]
    """What their user should know."""
    next: list[str]
    """Commands that come next."""


class FormRow(JsonDocument):
    """A document that a command prints with `--json`."""

    form: str
    """Command, and the options that choose this document."""
    about: str
    """What it is."""
