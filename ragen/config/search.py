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


class BestOfConfig(CandidatesConfig):
    """Take the response of the largest reward of its turn; of equals the first."""

    type: Literal["best_of"] = "best_of"


class BeamConfig(CandidatesConfig):
    """Keep several beginnings of a trajectory, those of the largest return so far; of equals the first. The trajectory
    is the best of those that are left at the end."""

    type: Literal["beam"] = "beam"
    beam_width: int = Field(2, ge=2, le=64)
    """B: beginnings kept from turn to turn; each goes on with M candidates."""


class LookaheadConfig(CandidatesConfig):
    """Take the response of the largest reward over some turns: each candidate is played on by the policy, one response
    a turn, and what that earned is added to its own. The turns played on are then forgotten."""

    type: Literal["lookahead"] = "lookahead"
    depth: int = Field(2, ge=2, le=64)
    """D: turns that are looked at, the candidate's own among them."""


SearchConfig = Annotated[BestOfConfig | BeamConfig | LookaheadConfig, Field(discriminator="type")]
"""How to search."""
