"""`Demonstration`: one turn of a mediocre but honest player."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Demonstration:
    """What a player thinks and does in one turn (`agents.prompting.parser.format_response`: as a response)."""

    think: str
    """Facts about the board, always true, and the decision."""
    actions: tuple[str, ...]
    """At least one of the environment's actions, and no more than fit into a turn."""
    is_resigned: bool = False
    """Is everything lost, whatever is done? Such a decision is demonstrated once, and its episode not played on."""
