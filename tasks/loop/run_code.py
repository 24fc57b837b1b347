"""Identity of the code that a run uses, so that a run's name stands for one version: edited code is another run.

configuration --plan of the loop's first iteration--> stage -> version, stage.role -> identity of code named in settings
"""

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.identity import UNREADABLE, is_reusable
from starpo.ragen.store.artifacts.keys import name_digits
from starpo.tasks import reward, update, variance_filter
from starpo.tasks.loop.plan import Planner
from starpo.tasks.loop.training import train


def code_of(config: StarPOConfig) -> dict[str, str]:
    """Identify the code that a run with these settings uses, as it enters the keys.

    Returns:
        Stage -> its version; `stage.role` -> the identity of the code that settings name, such as
        `update.advantage`. Stages of several panels share names, so their values are joined.
    """
    planners = [Planner(None, "", stop=1) for _ in config.phases]  # the first iteration stands for all
    for planner, phase in zip(planners, config.phases, strict=True):
        train(planner, phase)
    code: dict[str, set[str]] = {}
    for work in [work for planner in planners for work in planner.plan.stages]:
        stage = work.stage
        code.setdefault(stage.name, set()).add(str(stage.version))
        for role, identity in work.identities.items():
            known = identity if is_reusable(identity) else UNREADABLE.rstrip(":")  # else it differs per process
            code.setdefault(f"{stage.name}.{role}", set()).add(known)
    return {name: " ".join(sorted(values)) for name, values in sorted(code.items())}


def replay_code(config: StarPOConfig) -> dict[str, str]:
    """Identify the code that a replay with these settings uses: that of the stages that it recomputes."""
    from starpo.tasks import credit

    recomputed_stages = {module.STAGE.name for module in (reward, variance_filter, credit, update)}
    return {name: identity for name, identity in code_of(config).items() if name.partition(".")[0] in recomputed_stages}


def default_run_name(preset: str, config: StarPOConfig) -> str:
    """Return preset, seed, and eight digits of settings and code, so that the same settings continue the same run."""
    return f"{preset}-s{config.seed}-{settings_digits(config)}"


def settings_digits(config: StarPOConfig) -> str:
    """Hash settings, and the code that a run with them uses, into eight digits."""
    return name_digits({"config": config.model_dump(mode="json"), "code": code_of(config)})
