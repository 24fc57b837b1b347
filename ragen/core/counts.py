"""Numbers of things and times in words."""


def counted(number: float, noun: str) -> str:
    """Return a whole number and a noun with a regular plural, such as "1 stage" and "2 stages"."""
    return f"{number:.0f} {noun}" + ("" if number == 1 else "s")


def duration(seconds: float) -> str:
    """Format a time: in hours, and below an hour in minutes or seconds."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min" if seconds < 600 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
