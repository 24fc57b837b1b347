"""Where somebody else's exception comes from, in one line: the file, the line, the type and what it says."""

import traceback
from importlib.util import find_spec


def describe_fault(error: BaseException, module: str) -> str:
    """One line about an exception that a module raised, while it was imported or later.

    Args:
        error: The exception.
        module: Full name of the module at fault, whose line is named.

    Returns:
        Such as `/there/gridworld.py, line 3: SyntaxError: invalid syntax`.
    """
    words = str(error).strip().partition("\n")[0]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    file = _file(module)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = f"{file}, line {lines[-1]}: " if lines else ""
    return f"{place}{type(error).__name__}{f': {words}' if words else ''}"


def _file(module: str) -> str | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError, AttributeError):  # of a package that is not there
        return None
    return spec.origin if spec is not None else None
