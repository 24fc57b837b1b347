"""The prompts that a policy was trained on, and the limit of its responses, as an exported folder records them.

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
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import PolicyError

FILE = "agent_settings.json"
_OF_THE_TASK = {"max_turns", "max_actions", "max_actions_per_turn", "should_malformed_use_actions", "observation"}
_LIMIT = "max_response_tokens"


def write_agent(folder: str | Path, config: Mapping[str, Any]) -> None:
    """Record in a policy's folder its run's settings `agent`, without those that depend on what is played, and
    `rollout.max_response_tokens`."""
    kept = {name: value for name, value in config.get("agent", {}).items() if name not in _OF_THE_TASK}
    kept |= {name: value for name, value in config.get("rollout", {}).items() if name == _LIMIT}
    (Path(folder) / FILE).write_text(json.dumps(kept, indent=1, sort_keys=True), encoding="utf-8")


def read_agent(folder: str | Path) -> dict[str, Any]:
    """Return the settings recorded in a policy's folder: dotted path -> value; empty without a record.

    Raises:
        PolicyError: If the record cannot be read, or holds other settings than this release has.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        return {}
    settings = read_object(path)
    limit = {_LIMIT: settings.pop(_LIMIT)} if _LIMIT in settings else {}
    for model, values in ((AgentConfig, settings), (SamplingConfig, limit)):
        try:
            model.model_validate(values)
        except ValidationError as error:
            raise PolicyError(
                f"'{path}': {explain(error, model, {})}. Export the policy again, or delete the file: the full prompt "
                "and the default limit are then used"
            ) from error
    return {f"agent.{name}": value for name, value in settings.items()} | {
        f"rollout.{name}": value for name, value in limit.items()
    }
