"""Push of a folder to the Hugging Face Hub: private by default, with the credentials that `huggingface_hub` finds.

    OWNER/NAME --checked--> HubRepository --push(folder)--> a commit

The token is read when a `HubRepository` is created and sent only to the Hub: no message, record or file contains it.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from starpo.ragen.core.errors import ConfigError, HubError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.visible import quoted

Kind = Literal["model", "dataset"]

_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_MAX_CHARACTERS = 96
_NO_WRITING = (401, 403)


@dataclass(frozen=True)
class Pushed:
    """The result of a push.

    Attributes:
        url: URL of the repository.
        commit: Id of its latest commit.
        is_private: Whether the repository is private.
    """

    url: str
    commit: str
    is_private: bool


class HubRepository:
    """A repository that a folder can be pushed to."""

    def __init__(self, name: str, kind: Kind, *, is_public: bool = False) -> None:
        """Check the name and the credentials; nothing is sent yet.

        Args:
            name: `OWNER/NAME`.
            kind: Type of the repository.
            is_public: Whether to create a public repository, or push to an existing public one. If False, a new
                repository is private, and an existing public one is refused.

        Raises:
            ConfigError: If the name is invalid.
            HubError: If there are no credentials.
        """
        self.name, self._kind, self._is_public = _checked(name), kind, is_public
        self._token = _token()

    def push(self, folder: Path, message: str, left_out: Sequence[str] = ()) -> Pushed:
        """Create the repository if it does not exist, and commit the files of a folder; its other files are unchanged.

        Args:
            folder: Folder to push.
            message: Commit message.
            left_out: Patterns of files not to push.

        Raises:
            HubError: If the Hub refuses or cannot be reached, or the repository is public without `is_public`.
        """
        from huggingface_hub import HfApi

        api = HfApi(token=self._token)
        with self._failures():
            url = api.create_repo(self.name, repo_type=self._kind, private=not self._is_public, exist_ok=True)
            is_private = bool(api.repo_info(self.name, repo_type=self._kind).private)
        if not is_private and not self._is_public:
            raise HubError(
                f"the {self._kind} repository '{self.name}' already exists and is public; nothing was pushed. Give "
                "--public to publish there, or name a new repository, which will be private"
            )
        with self._failures():
            commit = api.upload_folder(
                repo_id=self.name,
                repo_type=self._kind,
                folder_path=folder,
                commit_message=message,
                ignore_patterns=list(left_out),
            )
        return Pushed(str(url), str(commit.oid), is_private)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Convert errors of the Hub, its client and the network to `HubError`, without secrets of the request."""
        try:
            yield
        except Exception as error:  # of the Hub, its client, TLS, the network
            status = getattr(getattr(error, "response", None), "status_code", None)
            said = without_secrets(" ".join(str(error).replace(self._token, "***").split()))[:300]
            hint = (
                "the token has no write access there: `hf auth whoami` shows its owner; create another at "
                "https://huggingface.co/settings/tokens"
                if status in _NO_WRITING
                else "try again, or check HF_ENDPOINT, HF_HUB_OFFLINE and the network"
            )
            raise HubError(f"the push to '{self.name}' on the Hugging Face Hub failed ({said}); {hint}") from None


def _checked(name: str) -> str:
    parts = name.split("/")
    is_name = (
        len(parts) == 2
        and all(_PART.fullmatch(part) for part in parts)
        and len(name) <= _MAX_CHARACTERS
        and "--" not in name
        and ".." not in name
        and not name.endswith(".git")
    )
    if not is_name:
        raise ConfigError(
            f"{quoted(name)} is not a repository name of the Hugging Face Hub; expected OWNER/NAME of letters, digits, "
            f"'-', '_' and '.', at most {_MAX_CHARACTERS} characters, such as me/sokoban-0.5b"
        )
    return name


def _token() -> str:
    from huggingface_hub import get_token

    token = get_token()
    if not token:
        raise HubError(
            "there are no credentials for the Hugging Face Hub: log in with `hf auth login`, or set HF_TOKEN to a "
            "token with write access (https://huggingface.co/settings/tokens)"
        )
    return token
