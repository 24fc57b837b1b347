"""Rollout by search: which of several sampled responses a turn takes (trajectory search rollouts, arXiv 2602.11767).

Every candidate is carried out on a copy of the environment. What it is scored by is what the environment pays, the
price of forfeited actions included, as the reward components 'environment' and 'forfeit' have it.
"""

from typing import Annotated, Literal

from pydantic import Field

from starpo.ragen.core.settings import Settings


class CandidatesConfig(Settings):
    """What all ways to search have in common."""

    num_candidates: int = Field(4, ge=2, le=256)
    """M: responses sampled in one context."""

    @property
    def num_rows(self) -> int:
        """Responses of one trajectory that are generated together, at most."""
        return self.num_candidates

    @property
    def num_sampled(self) -> int:
        """Responses that are generated for one turn of a trajectory, at most."""
        return self.num_rows


class BestOfConfig(CandidatesConfig):
    """Take the response of the largest reward of its turn; of equals the first."""

    type: Literal["best_of"] = "best_of"


class BeamConfig(CandidatesConfig):
    """Keep several beginnings of a trajectory, those of the largest return so far, and take the best at the end.

    Of equals the first is kept."""

    type: Literal["beam"] = "beam"
    beam_width: int = Field(2, ge=2, le=64)
    """B: beginnings kept from turn to turn; each goes on with M candidates."""

    @property
    def num_rows(self) -> int:
        """See `CandidatesConfig.num_rows`."""
        return self.num_candidates * self.beam_width


class LookaheadConfig(CandidatesConfig):
    """Take the response of the largest reward over its turn and some that follow, played by the policy and forgotten.

    A candidate is played on with one response a turn; of equals the first is taken."""

    type: Literal["lookahead"] = "lookahead"
    depth: int = Field(2, ge=2, le=64)
    """D: turns that are looked at, the candidate's own among them."""

    @property
    def num_sampled(self) -> int:
        """See `CandidatesConfig.num_sampled`."""
        return self.num_candidates * self.depth


SearchConfig = Annotated[BestOfConfig | BeamConfig | LookaheadConfig, Field(discriminator="type")]
"""How to search."""
