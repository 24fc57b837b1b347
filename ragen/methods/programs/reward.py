"""Reward of an episode that a program played."""

import json
from collections.abc import Mapping
from typing import Any

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.methods.programs.process import Ended
from starpo.ragen.methods.programs.settings import ProgramSettings


class ProgramError(StarPOError):
    """A program did not do what its settings say."""


def reward_of(
    settings: ProgramSettings, task: Mapping[str, Any], ended: Ended, transcript: list[dict[str, Any]]
) -> tuple[float, bool]:
    """Return reward and success."""
    try:
        last = json.loads(ended.output.strip().splitlines()[-1])
        return float(last["reward"]), bool(last.get("success", False))
    except (ValueError, LookupError, TypeError) as error:
        raise ProgramError(f"the last line is no JSON object with a reward: {error}") from error
