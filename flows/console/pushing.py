"""Shared code of commands that push a folder to the Hugging Face Hub."""

from collections.abc import Sequence
from pathlib import Path

from starpo.flows.console.terminal import Console
from starpo.ragen.core.errors import ConfigError, HubError
from starpo.ragen.evidence.exchange.hub import HubRepository, Kind, Pushed

NOT_OF_THE_POLICY = ("critic*.safetensors", "prm*.safetensors", "optimiser*.safetensors", "trainer.json")
"""Files of a checkpoint that only an update needs; they are not pushed."""


def named_repository(name: str | None, kind: Kind, is_public: bool) -> HubRepository | None:
    """Return the repository to push to, if any; invalid requests are refused before any work is done.

    Raises:
        ConfigError: If the name is invalid, or `--public` is given without one.
        HubError: If there are no credentials.
    """
    if name is None:
        if is_public:
            raise ConfigError("--public needs --push OWNER/NAME, the repository")
        return None
    return HubRepository(name, kind, is_public=is_public)


def push_folder(
    repository: HubRepository, folder: Path, message: str, *, is_kept: bool, left_out: Sequence[str] = ()
) -> Pushed:
    """Push a folder; if that fails and the folder is kept, the error says so.

    Raises:
        HubError: If the push fails.
    """
    try:
        with Console(stderr=True).status(f"pushing to {repository.name}"):
            return repository.push(folder, message, left_out)
    except HubError as error:
        if not is_kept:
            raise
        raise HubError(f"{error}. The folder is kept: {folder}") from None


def pushed_words(pushed: Pushed) -> str:
    """Describe in one line what was pushed."""
    return f"pushed  {pushed.url} ({'private' if pushed.is_private else 'public'}), commit {pushed.commit[:12]}"
