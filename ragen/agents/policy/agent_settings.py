"""The settings of the prompts that a policy was trained on, as an exported folder records them.

run.json -> write_agent -> agent_settings.json -> read_agent -> settings of whoever plays with the folder
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.explanation import explain
from starpo.ragen.config.model_files import read_object
from starpo.ragen.core.errors import PolicyError

FILE = "agent_settings.json"
_OF_THE_TASK = {"max_turns", "max_actions", "max_actions_per_turn", "should_malformed_use_actions", "observation"}


def write_agent(folder: str | Path, agent: Mapping[str, Any]) -> None:
    """Record in a policy's folder its settings `agent`, without those that depend on what is played."""
    kept = {name: value for name, value in agent.items() if name not in _OF_THE_TASK}
    (Path(folder) / FILE).write_text(json.dumps(kept, indent=1, sort_keys=True), encoding="utf-8")


def read_agent(folder: str | Path) -> dict[str, Any]:
    """Return the settings recorded in a policy's folder; empty without a record.

    Raises:
        PolicyError: If the record cannot be read, or holds other settings than this release has.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        return {}
    settings = read_object(path)
    try:
        AgentConfig.model_validate(settings)
    except ValidationError as error:
        raise PolicyError(
            f"'{path}': {explain(error, AgentConfig, {})}. Export the policy again, or delete the file: the full "
            "prompt is then shown"
        ) from error
    return settings
