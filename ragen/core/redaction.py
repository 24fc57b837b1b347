"""Redaction of secrets: everything that is shown, logged or raised goes through `without_secrets`."""

import os
import re
from urllib.parse import unquote

_HIDDEN = "***"
_SECRET_VARIABLE = re.compile(
    r"SECRET|TOKEN(?!IZER)|PASSW|PASSPHRASE|PASSCODE|PASS$|WEBHOOK|CREDENTIAL|PRIVATE|ACCESS_?KEY|API_?KEY|KEYS?$"
    r"|COOKIE|JWT|BEARER|MNEMONIC|CONN(?:ECTION)?_?STR|AUTH_?(?:STRING|HEADER)|AUTHORIZATION|BASIC_?AUTH"
    r"|(?:CUSTOM|OTLP|EXTRA|REQUEST)_HEADERS$|SIGNATURE$|(?:^|_)(?:PAT|DSN|AUTH|SAS|PW)$|_PWD$",
    re.IGNORECASE,
)
"""Names of environment variables whose values are secrets."""
_SECRET_SETTING = re.compile(
    r"(?:^|[._-])(?:password|passwd|passphrase|secret|credentials?|api_?key|access_?key|private_?key|token|cookie|jwt"
    r"|bearer|dsn|auth_?string|authorization|connection_?string)$",
    re.IGNORECASE,
)
_PASSWORDS = re.compile(r"://[^\s/:@]*:([^\s/@]+)@")
"""Passwords of addresses."""
_PAIR = re.compile(r"[^\s/:@]+:(?!//)(\S+)")
"""`user:password`."""
# Each pattern also consumes an address without a secret, so that megabytes of addresses take linear time. A secret may
# contain slashes; only an HTTP URL has a port, and may have an '@' after it.
_STORE_USER = re.compile(r"s3://[^/\s:]*:(?:(\S*@)|\S*)")
_USER = re.compile(r"://(?:([^/\s]*@)|[^/\s:]*:(?!\d+/)(?:(\S*@)|\S*))")
_ADDRESS = re.compile(r"(://[^\s?\"']*)(\?[^\s\"']*)?")
_MIN_SECRET = 6  # shorter values are not secrets, and occur in any text


def without_secrets(text: str) -> str:
    """Mask possible secrets: `user:password@` and the query string of a URL, and values of secret variables.

    The values are masked as they are and as `repr` shows them, and so are their lines, and passwords in addresses that
    any variable holds. Mask a text before it is cut: part of a value is not recognised.
    """
    for value in sorted(_secret_values(), key=len, reverse=True):
        text = text.replace(value, _HIDDEN)
    text = _STORE_USER.sub(lambda match: f"s3://{_HIDDEN}@" if match[1] else match[0], text)
    text = _USER.sub(lambda match: f"://{_HIDDEN}@" if match[1] or match[2] else match[0], text)
    return _ADDRESS.sub(lambda match: f"{match[1]}?{_HIDDEN}" if match[2] else match[0], text)


def hidden_if_secret(name: str, text: str) -> str:
    """Mask the value of a setting whose name marks it as a secret, whatever the value looks like."""
    return _HIDDEN if _SECRET_SETTING.search(name) else text


def _secret_values() -> set[str]:
    secrets: set[str] = set()
    for name, value in os.environ.items():
        passwords = _PASSWORDS.findall(value)
        if _SECRET_VARIABLE.search(name) and not _is_count(name, value):
            secrets.update((value, *map(str.strip, value.splitlines())))
            passwords += [pair[1]] if (pair := _PAIR.fullmatch(value.strip())) else []
        secrets.update((*passwords, *map(unquote, passwords)))
    long = {value for value in secrets if len(value) >= _MIN_SECRET}
    return long.union(*map(_escaped, long))


def _is_count(name: str, value: str) -> bool:
    """Whether it is a number of tokens, as in MAX_TOKENS."""
    return name.upper().endswith("TOKENS") and value.isdecimal()


def _escaped(value: str) -> set[str]:
    """Return a value as `repr` shows it within a text, which decides whether a single quote is escaped."""
    escaped = repr(f'"{value}')[2:-1]
    return {escaped, escaped.replace("\\'", "'")}
