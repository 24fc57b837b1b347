"""Errors of the library: one type for each boundary that data or a request crosses.

Every message says what was found, what was expected, where, and what to do next. All of them derive from
`StarPOError`, so that a command line or a flow can print one line instead of a traceback.
"""


def first_line(error: BaseException) -> str:
    """What an error says, without its advice; its type where it says nothing."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".:")


def named_line(error: BaseException) -> str:
    """The same with the error's type, for errors that were not foreseen."""
    return f"{type(error).__name__}: {first_line(error)}"


def one_line(error: BaseException) -> str:
    """All that an error says, its advice too, on one line."""
    return " ".join(str(error).split())


class StarPOError(ValueError):
    """Base of every error that a user can cause and can mend."""


class ConfigError(StarPOError):
    """A setting is unknown, of the wrong type or out of its bounds."""


class RegistryError(StarPOError):
    """What a registered name stands for cannot be imported."""


class MissingPackageError(StarPOError):
    """An optional package is needed for what was asked; the message names the extra to install."""


class EnvironmentFault(StarPOError):  # noqa: N818
    """An environment broke its own rules (not: an agent that failed in it)."""


class TemplateError(StarPOError):
    """A tokenizer has no chat template, or one to which turns cannot be appended."""


class PolicyError(StarPOError):
    """A model folder or name cannot be loaded as a policy."""


class EngineError(StarPOError):
    """A rollout engine failed or was asked for what it cannot do."""


class LearnerError(StarPOError):
    """An update cannot be computed from what it was given."""


class StoreError(StarPOError):
    """The store cannot be reached, read or written."""


class ArtifactMissingError(StoreError):
    """No artifact of this kind and key is in the store."""


class ArtifactDamagedError(StoreError):
    """An artifact is there, but its bytes or its manifest are not what was written."""

    what: str = ""
    """What is wrong with it, in a few words, for tables; empty where only the message says it."""


class NotAskedError(StoreError):
    """What somebody outside answered is not in the store, and nobody is asked for it here."""


class HubError(StarPOError):
    """The Hugging Face Hub cannot be reached, refuses, or there are no credentials for it."""


class DataError(StarPOError):
    """A dataset violates its contract; the failing data are in quarantine."""


class QueryError(StarPOError):
    """A question in SQL is malformed, would write, or would reach beyond the views."""


class RunStoppedError(StarPOError):
    """The training loop ends a run early, by what was measured: the same data would end it again."""


class NothingKeptError(RunStoppedError):
    """The filter kept no group, too many iterations in a row."""


class CollapsedError(RunStoppedError):
    """The run is collapsing, and its settings say what to do then.

    Attributes:
        healthy: The iteration at which it did best while nothing pointed to it.
    """

    def __init__(self, message: str, healthy: int) -> None:
        super().__init__(message)
        self.healthy = healthy
