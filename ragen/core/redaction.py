"""Secrets do not leave: what is shown, logged or raised goes through `without_secrets`."""

import os
import re

_HIDDEN = "***"
_SECRET_VARIABLE = re.compile(r"SECRET|TOKEN|PASSWORD|ACCESS_KEY|API_?KEY|FSSPEC_S3_KEY")
_SECRET_SETTING = re.compile(
    r"(?:^|[._-])(?:password|passwd|secret|credentials?|api_?key|access_?key|token)$", re.IGNORECASE
)
_MIN_SECRET = 6  # shorter values are no secrets, and occur in any text


def without_secrets(text: str) -> str:
    """Blank what could be a secret: `user:password@` and the query of an address, values of secret variables."""
    for value in sorted(_secret_values(), key=len, reverse=True):
        text = text.replace(value, _HIDDEN)
    # A secret may hold slashes; only an address of HTTP has a port, and may have an '@' behind it.
    text = re.sub(r"(?<=s3://)[^/\s:]*:\S*@", f"{_HIDDEN}@", text)
    text = re.sub(r"(?<=://)([^/\s]*|[^/\s:]*:(?!\d+/)\S*)@", f"{_HIDDEN}@", text)
    return re.sub(r"(://[^\s?\"']*)\?[^\s\"']*", rf"\1?{_HIDDEN}", text)


def hidden_if_secret(name: str, text: str) -> str:
    """What is shown of a setting's value: a password is one whatever it looks like."""
    return _HIDDEN if _SECRET_SETTING.search(name) else text


def _secret_values() -> set[str]:
    found = {value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)}
    return {value for value in found if len(value) >= _MIN_SECRET}
