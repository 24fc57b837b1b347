"""`Demonstration`: one turn of a mediocre but honest player."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Demonstration:
    """Reasoning and actions of a player in one turn; `agents.prompting.parser.format_response` makes it a response."""

    think: str
    """Facts about the board, always true, followed by the decision."""
    actions: tuple[str, ...]
    """One or more of the environment's actions, at most as many as fit into a turn."""
    is_resigned: bool = False
    """Whether the position is lost. Such a decision is demonstrated once, and its episode ends there."""
