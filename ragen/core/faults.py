"""One-line descriptions of exceptions from third-party code: file, line, type and message."""

import traceback
from importlib.util import find_spec


def describe_fault(error: BaseException, module: str) -> str:
    """Describe in one line an exception that a module raised, during its import or later.

    Args:
        error: The exception.
        module: Full name of the module at fault; the line reported is in this module.

    Returns:
        For example `/there/gridworld.py, line 3: SyntaxError: invalid syntax`.
    """
    words = str(error).strip().partition("\n")[0]
    if isinstance(error, SystemExit):
        words = f"sys.exit({error.code!r}) was called"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    file = _file(module)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = f"{file}, line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}{f': {words}' if words else ''}"


def _file(module: str) -> str | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError, AttributeError):  # its parent package is missing
        return None
    return spec.origin if spec is not None else None
