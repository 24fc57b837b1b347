"""`Outcome`: how a run ended."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """How a run ended: its status, such as `completed`, and the reason."""

    status: str
    reason: str
