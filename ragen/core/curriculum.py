"""`CurriculumSettings`: what the settings of every curriculum have in common (`ragen.config.curriculum`)."""

from collections.abc import Sequence

from pydantic import Field

from starpo.ragen.core.settings import Settings
from starpo.ragen.core.visible import quoted


class CurriculumSettings(Settings):
    """Settings of a curriculum, which computes the shares of levels from the success of earlier groups."""

    type: str
    """Name of the curriculum, or `module:attribute` of its function."""
    levels: list[str] | None = Field(None, min_length=2)
    """Tags of the environment's parts, from the easiest to the hardest, each once. None: in the order of
    `environment.values`; the parts of a mixture in alphabetical order."""
    window: int = Field(16, ge=1, le=10_000)
    """Number of a level's latest groups over which its success is the mean, whichever iterations played them."""

    def order(self, tags: Sequence[str]) -> list[str]:
        """Return the levels, from the easiest to the hardest; `tags` are those of the environment's parts."""
        return list(tags) if self.levels is None else self.levels

    def check_fits(self, environment: str, tags: Sequence[str]) -> None:
        """Check that the levels are the parts of the environment, which its panel measures.

        Args:
            environment: The environment's type.
            tags: Tags of its parts; empty if it has none.

        Raises:
            ValueError: If they are not; the message says what to set.
        """
        if not tags:
            raise ValueError(
                f"curriculum.type = '{self.type}' chooses between levels, and environment.type = '{environment}' has "
                "none: set environment.type = 'levels', or 'mixture' (docs/curriculum.md)"
            )
        levels = self.order(tags)
        if strangers := [level for level in levels if level not in tags]:
            raise ValueError(
                f"curriculum.levels names {quoted(strangers[0])}, which the environment does not play and its panel "
                f"does not measure: expected {', '.join(tags)}, or add it to the environment"
            )
        if len(tags) < 2 or sorted(levels) != sorted(tags):
            raise ValueError(
                f"curriculum.levels = {', '.join(levels)}: expected at least two, and each part of the environment "
                f"once ({', '.join(tags)}), since its panel measures all of them; remove a part there, or name it here"
            )
