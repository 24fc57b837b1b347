"""Errors of the library: one type for each boundary that data or a request crosses.

Every message states what was found, what was expected, where, and what to do next. All of them derive from
`StarPOError`, so that the command line or a flow can print one line instead of a traceback.
"""

from starpo.ragen.core.redaction import without_secrets


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, without its advice; its type name if the message is empty."""
    lines = without_secrets(str(error)).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".:")


def named_line(error: BaseException) -> str:
    """Return `first_line` preceded by the error's type, for unexpected errors."""
    return f"{type(error).__name__}: {first_line(error)}"


def one_line(error: BaseException) -> str:
    """Return the whole message of an error, advice included, on one line."""
    return " ".join(without_secrets(str(error)).split())


def is_transient(error: BaseException) -> bool:
    """Whether an error came from I/O (store, network) and may not occur again; wrong data or settings are final."""
    if isinstance(error, ArtifactMissingError | ArtifactDamagedError):
        return False
    return isinstance(error, StoreError | OSError)


class StarPOError(ValueError):
    """Base of every error that a user can cause and fix."""


class ConfigError(StarPOError):
    """A setting is unknown, has the wrong type or is out of bounds."""


class RegistryError(StarPOError):
    """The target of a registered name cannot be imported."""


class MissingPackageError(StarPOError):
    """The request needs an optional package; the message names the extra to install."""


class EnvironmentFault(StarPOError):  # noqa: N818
    """An environment broke its own contract (not an agent failing in it)."""


class SourceMissingError(EnvironmentFault):
    """A file or a data set that an environment's settings name is not there, or cannot be read."""


class CallLimitError(StarPOError):
    """A call of third-party code took longer than it may."""


class RewardError(StarPOError):
    """A reward component failed, or returned something other than one finite number per turn."""


class TemplateError(StarPOError):
    """A tokenizer has no chat template, or one that is not append-only."""


class PolicyError(StarPOError):
    """A model folder or name cannot be loaded as a policy."""


class EngineError(StarPOError):
    """A rollout engine failed or received a request that it cannot serve."""


class LearnerError(StarPOError):
    """An update cannot be computed from its inputs."""


class StoreError(StarPOError):
    """The store cannot be reached, read or written."""


class ArtifactMissingError(StoreError):
    """The store has no artifact of this kind and key."""


class ArtifactDamagedError(StoreError):
    """An artifact exists, but its bytes or its manifest are not what was written."""

    what: str = ""
    """What is wrong with it, in a few words, for tables; empty if only the message describes it."""


class DerivationError(StarPOError):
    """Repeated work gave another result than the original, or cannot be proved to have given the same."""


class NotAskedError(StoreError):
    """The answer of an external service is not in the store, and no service may be queried here."""


class NoVerdictError(StarPOError):
    """A check could not be started, such as of a run that does not exist; says nothing about what was to be checked."""


class DataError(StarPOError):
    """A dataset violates its contract. The message says where the failing data are kept."""


class QueryError(StarPOError):
    """An SQL query is malformed, would write, or would read beyond the views."""


class RunStoppedError(StarPOError):
    """The training loop ends a run early because of what it measured; the same data would end it again."""


class NothingKeptError(RunStoppedError):
    """The filter kept no group in too many consecutive iterations."""


class CollapsedError(RunStoppedError):
    """The run is collapsing, and its settings define the reaction.

    Attributes:
        healthy: The iteration at which it did best while no collapse signal was raised.
    """

    def __init__(self, message: str, healthy: int) -> None:
        super().__init__(message)
        self.healthy = healthy
