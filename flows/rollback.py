"""Rolling back: a run that collapses goes on as a fork from where it was healthy, with a remedy.

name, settings, healthy iteration -> rolled_back -> name and settings of the fork
"""

import hashlib
from collections.abc import Collection

from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.schedule import changed_at
from starpo.ragen.config.starpo import StarPOConfig

_MARK = "-rollback-"
_LENGTH = 80
_DIGITS = 8


def is_rollback(name: str, run: str) -> bool:
    """Is this the name of a fork that a run was rolled back to?"""
    beginning = _beginning(run)
    return name.startswith(beginning) and _MARK not in name.removeprefix(beginning)


def ended_as(run: str, names: Collection[str]) -> str:
    """The run as which a run ended, of the names of all runs: itself, or the last fork that it was rolled back to."""
    fork = next((name for name in names if is_rollback(name, run)), None)
    return run if fork is None else ended_as(fork, names)


def rolled_back(run: str, config: StarPOConfig, healthy: int) -> tuple[str, StarPOConfig] | None:
    """How a run that collapsed goes on.

    Args:
        run: Its name.
        config: Its settings.
        healthy: The iteration at which it did best while nothing pointed to a collapse.

    Returns:
        Name and settings of the fork: the first remedy holds from that iteration on, and the others are left for the
        next time. None: the run ends, since its settings say so, none of its remedies is left, or it never was healthy.
    """
    diagnostics = config.diagnostics
    if diagnostics.on_collapse != "roll_back" or not diagnostics.remedies or healthy < 1:
        return None
    remedy, *left = diagnostics.remedies
    schedule = changed_at(config.schedule, healthy, remedy)
    name = f"{_beginning(run)}{healthy}"
    return name, apply_overrides(config, {"schedule": schedule, "diagnostics.remedies": left}, name)


def what_comes(run: str, config: StarPOConfig, healthy: int) -> str:
    """The same for people: a sentence."""
    again = rolled_back(run, config, healthy)
    if again is not None:
        changes = ", ".join(f"{path} = {value}" for path, value in sorted(config.diagnostics.remedies[0].items()))
        return f"It goes on from checkpoint {healthy} as run '{again[0]}', with {changes}"
    if config.diagnostics.on_collapse == "roll_back":
        reason = "no remedy is left" if healthy else "no iteration after the first was healthy"
        return f"It ends here: {reason} (diagnostics.remedies)"
    return "It ends here, as diagnostics.on_collapse = 'stop' says"


def _beginning(run: str) -> str:
    """Of the names of a run's forks; a long name is cut, and a digest of it tells it from others that begin alike."""
    if len(run) > _LENGTH:
        digest = hashlib.sha256(run.encode()).hexdigest()[:_DIGITS]
        run = f"{run[: _LENGTH - _DIGITS - 1]}-{digest}"
    return f"{run}{_MARK}"
