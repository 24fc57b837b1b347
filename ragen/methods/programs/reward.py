"""What an episode is worth: read from the program's output, or computed from the transcript by a function or a command.

    settings, task, how the program ended, transcript -> reward, success

A reward is never 0 by accident: what is missing or malformed is an error, and the episode has failed.
"""

import copy
import json
import math
from collections.abc import Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING, Any

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import EnvironmentFault, StarPOError
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.guard import FOREIGN, guarded
from starpo.ragen.core.lookup import resolve
from starpo.ragen.methods.programs.process import Ended, RunningProgram

if TYPE_CHECKING:
    from starpo.ragen.methods.programs.settings import ProgramSettings

_EXPECTED = 'expected a finite number, or {"reward": a finite number, "success": true or false}'


class ProgramError(EnvironmentFault):
    """A program, or what rewards it, did not do what it has to do."""


def reward_of(
    settings: "ProgramSettings",
    task: Mapping[str, Any],
    ended: Ended,
    transcript: Sequence[Mapping[str, Any]],
    unwanted: Event | None = None,
) -> tuple[float, bool]:
    """Return the reward of an episode, and whether it was successful.

    Where only a number is given, an episode is successful if it is positive. A command takes up to
    `settings.time_limit_s`, in which this function waits; it may be called in a thread.

    Args:
        settings: Names the source of the reward.
        task: The episode's task.
        ended: How the program ended.
        transcript: What was said, JSON values.
        unwanted: Once this is set, a command is killed.

    Raises:
        ProgramError: If there is no reward, or none that counts.
    """
    if isinstance(settings.reward, list):
        given = {"task": task, "transcript": list(transcript)}
        rewarder = RunningProgram(settings, given, command=settings.reward).wait(unwanted)
        name = settings.reward[0]
        if rewarder.status != "done":
            raise ProgramError(f"the reward's command {name} {rewarder.status}: {rewarder.detail}")
        return _of_output(rewarder.output, f"the reward's command {name}", may_be_number=True)
    if settings.reward == "output":
        return _of_output(ended.output, "the program", may_be_number=False)
    function = resolve(settings.reward)
    try:
        with guarded(f"the reward {settings.reward}", Runtime.current().environment_limit):
            made = function(copy.deepcopy(list(transcript)), copy.deepcopy(dict(task)))
    except StarPOError:
        raise
    except FOREIGN as error:
        fault = describe_fault(error, settings.reward.partition(":")[0])
        raise ProgramError(f"the reward {settings.reward} failed: {fault}") from error
    if isinstance(made, tuple) and len(made) == 2:
        made = {"reward": made[0], "success": made[1]}
    return _checked(made, f"the reward {settings.reward} returned")


def _of_output(output: str, source: str, *, may_be_number: bool) -> tuple[float, bool]:
    """Read the last line that is a JSON object (or a number, if it may be one)."""
    for line in reversed(output.splitlines()):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) or (may_be_number and isinstance(value, int | float)):
            return _checked(value, f"{source} printed")
    raise ProgramError(f'{source} printed no reward; expected a last line such as {{"reward": 1.0, "success": true}}')


def _checked(made: Any, place: str) -> tuple[float, bool]:
    reward, success = (made.get("reward"), made.get("success")) if isinstance(made, Mapping) else (made, None)
    try:
        number = math.nan if isinstance(reward, bool | str | bytes) or reward is None else float(reward)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or not (success is None or isinstance(success, bool)):
        raise ProgramError(f"{place} {repr(made)[:200]}; {_EXPECTED}")
    return number, number > 0 if success is None else success
