"""Settings of the searches: best of M, beam, lookahead.

Every candidate is executed on a copy of the environment. Its score is the environment's reward including the price of
forfeited actions, as in the reward components 'environment' and 'forfeit'.
"""

from typing import Literal

from pydantic import Field

from starpo.ragen.core.candidates import CandidatesConfig


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
