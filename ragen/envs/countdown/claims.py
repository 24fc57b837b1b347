"""Claims in reasoning about a puzzle: sums, and whether an attempt reaches the target."""

import re

from starpo.ragen.envs.claim import Claim
from starpo.ragen.envs.sums import sums

_PUZZLE = re.compile(r"Target: (\d{1,9}), nums: \[")
_VERDICT = re.compile(r"= (?P<made>\d{1,9}) vs (?P<target>\d{1,9}) (?P<said>yes|no)\b")


def claims(observation: str, reasoning: str) -> list[Claim]:
    """Return the checkable claims in the reasoning, sums first; [] if the observation cannot be parsed."""
    puzzle = _PUZZLE.match(observation)
    if puzzle is None:
        return []
    found = sums(reasoning)
    for verdict in _VERDICT.finditer(reasoning):
        truth = f"{puzzle[1]} {'yes' if verdict['made'] == puzzle[1] else 'no'}"
        said = f"{verdict['target']} {verdict['said']}"
        found.append(Claim("target made", f"{verdict['made']} vs {said}", said == truth, truth))
    return found
