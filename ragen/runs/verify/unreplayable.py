"""Environments that cannot be replayed: playing them again neither confirms nor refutes a recorded result.

settings, manifest -> unreplayable -> a sentence, or nothing
visit, config, manifest -> check_can_be_played        settings -> check_is_at_hand
"""

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import SourceMissingError, first_line
from starpo.ragen.core.registry import ENVIRONMENTS, SUITES
from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.sources import check_files
from starpo.ragen.runs.verify.chosen import Visit
from starpo.ragen.runs.verify.verdict import NotComputedError, Verdict
from starpo.schemas.manifest import Manifest


def unreplayable(settings: EnvironmentSettings, manifest: Manifest | None) -> str:
    """Explain why an artifact cannot be verified by playing its environment again.

    The environment reports whether it can be replayed. A fault recorded in the artifact's manifest counts too, since a
    server may have been fixed since, but not for an environment that is known to be replayable: otherwise the mark
    would excuse a forgery.

    Args:
        settings: Settings of the environment.
        manifest: Manifest of the artifact; None if missing.

    Returns:
        A sentence; empty if the environment can be replayed.

    Raises:
        MissingPackageError: If the environment needs a package that is not installed.
    """
    fault = make(settings).replay_fault
    parts = settings.tagged().values()
    if not fault and manifest is not None and not all(_is_known_to_replay(part.type) for part in parts):
        fault = manifest.replay_fault
    return f"the environment {settings.type} cannot be replayed ({fault})" if fault else ""


def check_can_be_played(visit: Visit, config: StarPOConfig, manifest: Manifest | None) -> None:
    """Check that the environment that a stage played, if any, can be replayed.

    Args:
        visit: The stage.
        config: Settings of the run.
        manifest: Manifest of an artifact that it made; None if missing.

    Raises:
        NotComputedError: If it cannot be replayed, or a file that it needs is not there.
        EnvironmentFault: If such a file has changed.
    """
    settings = played_by(visit, config)
    if settings:
        check_is_at_hand(settings)
    reason = unreplayable(settings, manifest) if settings else ""
    if reason:
        raise NotComputedError(Verdict.NOT_SHOWN, reason)


def check_is_at_hand(settings: EnvironmentSettings) -> None:
    """Check that the files that an environment needs are there.

    Raises:
        NotComputedError: If one is not.
        EnvironmentFault: If one has changed.
    """
    try:
        check_files(settings)
    except SourceMissingError as error:
        raise NotComputedError(Verdict.NOT_SHOWN, first_line(error)) from error


def evaluated_cells(config: StarPOConfig) -> dict[str, EnvironmentSettings]:
    """Return the settings of the environments that evaluations play, by name of the cell."""
    return {config.environment.type: config.environment} | config.evaluation.variants


def played_by(visit: Visit, config: StarPOConfig) -> EnvironmentSettings | None:
    """Return the settings of the environment that a stage plays; None if it plays none."""
    if visit.stage == "evaluate":
        return evaluated_cells(config).get(visit.cell)
    is_demonstrated = visit.stage == "warm_start" and visit.work is not None and "environment" in visit.work.settings
    return config.environment if visit.stage in ("rollout", "credit") or is_demonstrated else None


def _is_known_to_replay(name: str) -> bool:
    return name in ENVIRONMENTS and name not in ENVIRONMENTS.packages and name not in SUITES
