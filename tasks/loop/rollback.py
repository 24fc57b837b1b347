"""Rollback: a run that collapses continues as a fork from a healthy iteration, with a remedy.

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
    """Whether this is the name of a fork that the run was rolled back to."""
    beginning = _beginning(run)
    return name.startswith(beginning) and _MARK not in name.removeprefix(beginning)


def final_run(run: str, names: Collection[str]) -> str:
    """Find the run that a run ended as, given all runs' names: itself, or the last fork that it was rolled back to."""
    fork = next((name for name in names if is_rollback(name, run)), None)
    return run if fork is None else final_run(fork, names)


def rolled_back(run: str, config: StarPOConfig, healthy: int) -> tuple[str, StarPOConfig] | None:
    """Plan how a collapsed run continues.

    Args:
        run: The run's name.
        config: Its settings.
        healthy: Best iteration before any sign of a collapse; 0 if there is none.

    Returns:
        Name and settings of the fork. Its first remedy applies from that iteration on; the others remain for the next
        rollback. None if the run ends, because its settings say so, no remedy is left, or it never was healthy.
    """
    diagnostics = config.diagnostics
    if diagnostics.on_collapse != "roll_back" or not diagnostics.remedies or healthy < 1:
        return None
    remedy, *left = diagnostics.remedies
    schedule = changed_at(config.schedule, healthy, remedy)
    name = f"{_beginning(run)}{healthy}"
    return name, apply_overrides(config, {"schedule": schedule, "diagnostics.remedies": left}, name)


def describe_outcome(run: str, config: StarPOConfig, healthy: int) -> str:
    """Describe in a sentence how a collapsed run continues or why it ends; arguments as for `rolled_back`."""
    again = rolled_back(run, config, healthy)
    if again is not None:
        changes = ", ".join(f"{path} = {value}" for path, value in sorted(config.diagnostics.remedies[0].items()))
        return f"It goes on from checkpoint {healthy} as run '{again[0]}', with {changes}"
    if config.diagnostics.on_collapse == "roll_back":
        reason = "no remedy is left" if healthy else "no iteration after the first was healthy"
        return f"It ends here: {reason} (diagnostics.remedies)"
    return "It ends here, as diagnostics.on_collapse = 'stop' says"


def _beginning(run: str) -> str:
    """Common prefix of the names of a run's forks; a long name is truncated and made unique by its digest."""
    if len(run) > _LENGTH:
        digest = hashlib.sha256(run.encode()).hexdigest()[:_DIGITS]
        run = f"{run[: _LENGTH - _DIGITS - 1]}-{digest}"
    return f"{run}{_MARK}"
