"""One update on stored datasets, from what its manifest says: settings, inputs, seed; and by which code."""

import json
from collections.abc import Mapping
from typing import Any

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.registry import ADVANTAGES, LOSSES
from starpo.ragen.learning.learners.learner import Learner, UpdateContext, UpdateResult
from starpo.ragen.learning.learners.trajectories import assemble
from starpo.ragen.store import Store


def run_update(
    store: Store, learner: Learner, settings: Mapping[str, Any], inputs: Mapping[str, str], seed: int
) -> UpdateResult:
    """Update a learner that is at its checkpoint.

    Args:
        store: Where the datasets are.
        learner: Changed in place.
        settings: Of the stage `update`: the configuration, and where in the run it stands.
        inputs: Of the stage: the keys of turns, rewards and selection are read.
        seed: Of the stage.

    Raises:
        LearnerError: If there is nothing to train on, a loss is not finite, or search chose responses and the settings
            do not say to weigh them.
        ArtifactMissingError: If a dataset is not stored.
        ArtifactDamagedError: If one is not what was written.
    """
    trajectories = assemble(*(store.read_table(kind, inputs[kind]) for kind in ("turns", "rewards", "selection")))
    chosen = [trajectory for trajectory in trajectories if trajectory.turn_weights is not None]
    if chosen and update_config(settings).search_rows == "refuse":
        raise LearnerError(
            f"search chose the responses of {len(chosen)} of {len(trajectories)} trajectories (first: "
            f"'{chosen[0].trajectory_id}'), and update.search_rows = 'refuse' does not train on them: set it to 'weigh'"
        )
    return learner.update(trajectories, update_context(settings, seed))


def update_context(settings: Mapping[str, Any], seed: int) -> UpdateContext:
    """Where in the run an update with these settings of a stage stands."""
    iteration, num_iterations = settings["iteration"], settings["num_iterations"]
    return UpdateContext(
        iteration=iteration,
        num_iterations=iteration + 1 if num_iterations is None else num_iterations,  # None: no schedule reads it
        seed=seed,
        temperature=settings["temperature"],
        max_response_tokens=settings["max_response_tokens"],
    )


def update_config(settings: Mapping[str, Any]) -> UpdateConfig:
    """The configuration within the settings of a stage `update`."""
    own = {name: value for name, value in settings.items() if name in UpdateConfig.model_fields}
    return UpdateConfig.model_validate_json(json.dumps(own))


def update_code(config: UpdateConfig) -> dict[str, str]:
    """Role -> `module:attribute` of the code that the settings of an update name."""
    code = {"advantage": ADVANTAGES[config.advantage], "loss": LOSSES["loss"]}
    return code | ({"kl": LOSSES["kl"]} if config.kl_coefficient > 0 else {})
