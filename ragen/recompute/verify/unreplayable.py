"""What an environment that cannot be replayed leaves unshown: whatever comes out when it is played again.

settings, manifest -> unreplayable -> a sentence, or nothing
"""

from starpo.ragen.core.registry import ENVIRONMENTS, SUITES
from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.schemas.manifest import Manifest


def unreplayable(settings: EnvironmentSettings, manifest: Manifest | None) -> str:
    """Say why playing an artifact again shows nothing.

    The environment is asked. What an artifact says of it is believed too, since a server may have been mended
    meanwhile, but of no environment that is known here to replay: a mark excuses no forgery.

    Args:
        settings: The environment that was played.
        manifest: Of what it played.

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
