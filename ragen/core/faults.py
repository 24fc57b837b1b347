"""Exceptions as texts that may be stored and shown: one-line descriptions, and messages without secrets."""

import os
import re
import traceback
from importlib.util import find_spec

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.redaction import without_secrets

_OS_ERROR = re.compile(r"\(os error (\d+)\)")


def describe_fault(error: BaseException, module: str) -> str:
    """Describe in one line an exception that a module raised, during its import or later.

    Args:
        error: The exception.
        module: Full name of the module at fault; the line reported is in this module.

    Returns:
        For example `/there/gridworld.py, line 3: SyntaxError: invalid syntax`.
    """
    words = without_secrets(str(error)).strip().partition("\n")[0]
    if isinstance(error, SystemExit):
        words = f"sys.exit({error.code!r}) was called"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    file = _file(module)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = f"{file}, line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}{f': {words}' if words else ''}"


def is_raised_in(error: BaseException, module: str) -> bool:
    """Whether an exception was raised in a module, or in what it called."""
    return any(frame.filename == _file(module) for frame in traceback.extract_tb(error.__traceback__))


def redacted(error: BaseException) -> BaseException:
    """Mask secrets in an exception and in those that led to it, before it leaves our code for Prefect's database.

    Returns:
        The same exception; a `StarPOError` with its redacted text if the text cannot be changed.
    """
    chain: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in chain:
            chain.append(one)
            waiting += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    for one in chain:
        if notes := getattr(one, "__notes__", None):
            one.__notes__ = [without_secrets(str(note)) for note in notes]
        one.args = tuple(without_secrets(part) if isinstance(part, str) else part for part in one.args)
        for name in ("strerror", "filename", "filename2"):
            if isinstance(getattr(one, name, None), str):
                setattr(one, name, without_secrets(getattr(one, name)))
    texts = [str(one) for one in chain]
    if all(without_secrets(text) == text for text in texts):
        return error
    return StarPOError(without_secrets(f"{type(error).__name__}: {error}"))


def os_error_of(error: BaseException) -> OSError | None:
    """Return the OS error behind an error, including safetensors errors, which give its number in the message; None if
    there is none."""
    if isinstance(error, OSError):
        return error
    number = _OS_ERROR.search(str(error)) if type(error).__module__.startswith("safetensors") else None
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


def _file(module: str) -> str | None:
    try:
        spec = find_spec(module)
    except (Exception, SystemExit):  # its parent package is missing, or may do anything when it is imported
        return None
    return spec.origin if spec is not None else None
