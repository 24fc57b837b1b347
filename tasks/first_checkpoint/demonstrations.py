"""What demonstrations depend on: the settings that they are played with, and the code that these name."""

from typing import Any

from starpo.ragen.config.policy import FineTuning, TinyPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.registry import SCENES, agent_code
from starpo.ragen.envs.make import environment_code, environment_type


def demonstration_settings(config: StarPOConfig) -> dict[str, Any]:
    """Return the settings that demonstrations are played with, as JSON."""
    return {
        "environment": config.environment.model_dump(mode="json"),
        "agent": config.agent.model_dump(mode="json"),
        "max_response_tokens": config.rollout.max_response_tokens,
    }


def demonstration_code(config: StarPOConfig, policy: TinyPolicy | FineTuning) -> dict[str, str]:
    """Return role -> `module:attribute` of the code that these settings name.

    Raises:
        ConfigError: If the environment has no demonstrator.
    """
    from starpo.ragen.agents.policy.tokenizer import demonstrator

    environment = config.environment
    code = {
        **environment_code(environment),
        "demonstrator": demonstrator(policy, environment),
        **agent_code(config.agent.prompt, config.agent.form),
    }
    if config.agent.form != "free":
        code |= {f"scene of {tag}": SCENES[part.type] for tag, part in environment.tagged().items()}
    if lessons := environment_type(environment.type).lessons:
        code["lessons"] = lessons
    for tag, part in environment.tagged().items():
        if part is not environment:
            world = environment_type(part.type)
            named = {f"demonstrator of {tag}": world.demonstrator, f"lessons of {tag}": world.lessons}
            code |= {role: target for role, target in named.items() if target}
    return code
