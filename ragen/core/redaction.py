"""Redaction of secrets: everything that is shown, logged or raised goes through `without_secrets`."""

import os
import re

_HIDDEN = "***"
_SECRET_VARIABLE = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|PASS$|WEBHOOK|CREDENTIAL|PRIVATE|ACCESS_KEY|API_?KEY|KEY$|(?:^|_)(?:PAT|DSN|AUTH)$"
    r"|_PWD$",
    re.IGNORECASE,
)
"""Names of environment variables whose values are secrets."""
_SECRET_SETTING = re.compile(
    r"(?:^|[._-])(?:password|passwd|secret|credentials?|api_?key|access_?key|token)$", re.IGNORECASE
)
# Each pattern also consumes an address without a secret, so that megabytes of addresses take linear time. A secret may
# contain slashes; only an HTTP URL has a port, and may have an '@' after it.
_STORE_USER = re.compile(r"s3://[^/\s:]*:(?:(\S*@)|\S*)")
_USER = re.compile(r"://(?:([^/\s]*@)|[^/\s:]*:(?!\d+/)(?:(\S*@)|\S*))")
_ADDRESS = re.compile(r"(://[^\s?\"']*)(\?[^\s\"']*)?")
_MIN_SECRET = 6  # shorter values are not secrets, and occur in any text


def without_secrets(text: str) -> str:
    """Mask possible secrets: `user:password@` and the query string of a URL, and values of secret variables.

    The values are masked as they are and as `repr` shows them.
    """
    for value in sorted(_secret_values(), key=len, reverse=True):
        text = text.replace(value, _HIDDEN)
    text = _STORE_USER.sub(lambda found: f"s3://{_HIDDEN}@" if found[1] else found[0], text)
    text = _USER.sub(lambda found: f"://{_HIDDEN}@" if found[1] or found[2] else found[0], text)
    return _ADDRESS.sub(lambda found: f"{found[1]}?{_HIDDEN}" if found[2] else found[0], text)


def hidden_if_secret(name: str, text: str) -> str:
    """Mask the value of a setting whose name marks it as a secret, whatever the value looks like."""
    return _HIDDEN if _SECRET_SETTING.search(name) else text


def _secret_values() -> set[str]:
    found = {value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)}
    long = {value for value in found if len(value) >= _MIN_SECRET}
    return long.union(*map(_escaped, long))


def _escaped(value: str) -> set[str]:
    """Return a value as `repr` shows it within a text, which decides whether a single quote is escaped."""
    escaped = repr(f'"{value}')[2:-1]
    return {escaped, escaped.replace("\\'", "'")}
