"""Numbers of things in words, in the singular for one."""


def counted(number: float, noun: str) -> str:
    """Return a whole number and a noun with a regular plural, such as "1 stage" and "2 stages"."""
    return f"{number:.0f} {noun}" + ("" if number == 1 else "s")
