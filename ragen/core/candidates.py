"""`CandidatesConfig`: what the settings of every search have in common (`ragen.config.search`)."""

from pydantic import Field

from starpo.ragen.core.settings import Settings


class CandidatesConfig(Settings):
    """Settings of a search, which takes each turn's response from several."""

    type: str
    """Name of the search, or `module:attribute` of its function."""
    num_candidates: int = Field(4, ge=2, le=256)
    """M: responses sampled per context."""

    @property
    def num_rows(self) -> int:
        """Maximum number of responses of one trajectory that are generated together."""
        return self.num_candidates

    @property
    def num_sampled(self) -> int:
        """Maximum number of responses generated for one turn of a trajectory."""
        return self.num_rows
