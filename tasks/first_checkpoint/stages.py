"""Name and version of the stage `warm_start`, and the settings that every kind of policy has."""

from typing import Any

from starpo.ragen.config.starpo import StarPOConfig
from starpo.schemas.manifest import Stage

EMBEDDED = Stage(name="warm_start", version=4)
"""The stage of the embedded policy."""
PRETRAINED = Stage(name="warm_start", version=5)
"""The stage of a policy with a tokenizer and a chat template of others. The keys of its rollouts and evaluations depend
on this one, so that the version also stands for the ids of its prompts."""


def policy_settings(config: StarPOConfig, policy: dict[str, Any]) -> dict[str, Any]:
    """Return the stage's settings of the policy.

    With `fresh`, all other keys depend on another checkpoint, so no stored artifact is reused.

    Args:
        config: All settings.
        policy: Those of the policy that affect its first checkpoint, as JSON.
    """
    return {"policy": policy, **({"fresh": config.fresh} if config.fresh else {})}
