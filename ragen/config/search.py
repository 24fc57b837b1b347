"""Rollout by search: which of several sampled responses a turn takes (trajectory search rollouts, arXiv 2602.11767).

Every candidate is executed on a copy of the environment. Its score is the environment's reward including the price of
forfeited actions, as in the reward components 'environment' and 'forfeit'.
"""

from typing import Annotated, Literal

from pydantic import Field

from starpo.ragen.core.settings import Settings


class CandidatesConfig(Settings):
    """Settings shared by all search methods."""

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


class BestOfConfig(CandidatesConfig):
    """Best-of-M search: take the response with the largest reward in its turn; ties go to the first."""

    type: Literal["best_of"] = "best_of"


class BeamConfig(CandidatesConfig):
    """Beam search: keep the partial trajectories with the largest return so far, and take the best at the end.

    Ties go to the first."""

    type: Literal["beam"] = "beam"
    beam_width: int = Field(2, ge=2, le=64)
    """B: partial trajectories kept from turn to turn; each is continued with M candidates."""

    @property
    def num_rows(self) -> int:
        """See `CandidatesConfig.num_rows`."""
        return self.num_candidates * self.beam_width


class LookaheadConfig(CandidatesConfig):
    """Lookahead search: take the response with the largest reward over its turn and simulated turns after it.

    The policy plays the simulated turns with one response per turn, and they are discarded; ties go to the first."""

    type: Literal["lookahead"] = "lookahead"
    depth: int = Field(2, ge=2, le=64)
    """D: number of turns considered, including the candidate's own."""

    @property
    def num_sampled(self) -> int:
        """See `CandidatesConfig.num_sampled`."""
        return self.num_candidates * self.depth


SearchConfig = Annotated[BestOfConfig | BeamConfig | LookaheadConfig, Field(discriminator="type")]
"""Settings of the search method."""
