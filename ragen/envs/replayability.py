"""Replayability of an environment: it is played twice in this process and once in another.

settings -> check -> findings -> Replayability
"""

from collections.abc import Sequence
from dataclasses import dataclass

from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.check import RULES_OF_REPLAY, Finding, rule_name
from starpo.ragen.envs.make import make


@dataclass(frozen=True)
class Replayability:
    """Verdict on whether the same seeds and actions give the same episode, in any process.

    Attributes:
        fault: Reason why they may not; empty if they do, as far as random play has shown.
    """

    fault: str = ""

    @property
    def is_replayable(self) -> bool:
        """Whether there is no fault."""
        return not self.fault


def replayability(settings: EnvironmentSettings, findings: Sequence[Finding]) -> Replayability:
    """Decide from the environment's own declaration and from the checker's findings.

    Args:
        settings: Settings of the environment.
        findings: All findings of `check`, including those of the subprocess.

    Raises:
        MissingPackageError: If the environment needs a package that is not installed.
    """
    names = {rule_name(rule) for rule in RULES_OF_REPLAY}
    found = next((finding.found for finding in findings if names & {finding.rule, *finding.also}), "")
    try:
        told = make(settings).replay_fault
    except FOREIGN:
        if not found:
            raise
        told = ""
    return Replayability(told or found)
