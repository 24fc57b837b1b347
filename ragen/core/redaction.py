"""Redaction of secrets: everything that is shown, logged or raised goes through `without_secrets`."""

import os
import re

_HIDDEN = "***"
_SECRET_VARIABLE = re.compile(r"SECRET|TOKEN|PASSWORD|ACCESS_KEY|API_?KEY|FSSPEC_S3_KEY")
_SECRET_SETTING = re.compile(
    r"(?:^|[._-])(?:password|passwd|secret|credentials?|api_?key|access_?key|token)$", re.IGNORECASE
)
_MIN_SECRET = 6  # shorter values are not secrets, and occur in any text


def without_secrets(text: str) -> str:
    """Mask possible secrets: `user:password@` and the query string of a URL, and values of secret variables."""
    for value in sorted(_secret_values(), key=len, reverse=True):
        text = text.replace(value, _HIDDEN)
    # A secret may contain slashes; only an HTTP URL has a port, and may have an '@' after it.
    text = re.sub(r"(?<=s3://)[^/\s:]*:\S*@", f"{_HIDDEN}@", text)
    text = re.sub(r"(?<=://)([^/\s]*|[^/\s:]*:(?!\d+/)\S*)@", f"{_HIDDEN}@", text)
    return re.sub(r"(://[^\s?\"']*)\?[^\s\"']*", rf"\1?{_HIDDEN}", text)


def hidden_if_secret(name: str, text: str) -> str:
    """Mask the value of a setting whose name marks it as a secret, whatever the value looks like."""
    return _HIDDEN if _SECRET_SETTING.search(name) else text


def _secret_values() -> set[str]:
    found = {value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)}
    return {value for value in found if len(value) >= _MIN_SECRET}
