"""Rolling back: a run that collapses goes on as a fork from where it was healthy, with a remedy.

name, settings, healthy iteration -> rolled_back -> name and settings of the fork
"""

from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.schedule import changed_at
from starpo.ragen.config.starpo import StarPOConfig

_MARK = "-rollback-"


def is_rollback(name: str, run: str) -> bool:
    """Is this the name of a fork that a run was rolled back to?"""
    return name.startswith(f"{run[:80]}{_MARK}") and _MARK not in name.removeprefix(f"{run[:80]}{_MARK}")


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
    name = f"{run[:80]}{_MARK}{healthy}"
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
