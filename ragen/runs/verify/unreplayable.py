"""Environments that cannot be replayed: playing them again neither confirms nor refutes a recorded result.

settings, manifest -> unreplayable -> a sentence, or nothing
"""

from starpo.ragen.core.registry import ENVIRONMENTS, SUITES
from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings
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


def _is_known_to_replay(name: str) -> bool:
    return name in ENVIRONMENTS and name not in ENVIRONMENTS.packages and name not in SUITES
