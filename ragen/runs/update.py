"""One update on stored datasets, as described by its manifest: settings, inputs, seed and code."""

import json
import logging
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.config.objective import ObjectiveConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError, StarPOError
from starpo.ragen.core.faults import describe_fault, is_raised_in
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.core.lookup import NEEDS
from starpo.ragen.core.registry import ADVANTAGES, COMPANIONS, LOSSES, SHAPINGS, SURROGATES, TURN_ORDERS
from starpo.ragen.learning.learners.data.spans import Spans
from starpo.ragen.learning.learners.data.trajectories import Trajectory, assemble
from starpo.ragen.learning.learners.learner import Learner, OnProgress, UpdateContext, UpdateResult
from starpo.ragen.runs.stored_images import read_turns
from starpo.ragen.runs.stored_policy import find_tokenizer
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import read_attempts
from starpo.ragen.store.keeping.recipe import how_made

_log = logging.getLogger(__name__)


def run_update(
    store: Store,
    learner: Learner,
    settings: Mapping[str, Any],
    inputs: Mapping[str, str],
    seed: int,
    on_progress: OnProgress | None = None,
) -> UpdateResult:
    """Run one update of a learner that has loaded its checkpoint.

    Args:
        store: Store of the datasets.
        learner: Changed in place.
        settings: Settings of the stage `update`: the configuration, and the position in the run.
        inputs: Inputs of the stage; the turns, rewards and selection of all attempts are read.
        seed: Seed of the stage.
        on_progress: Called with the progress (`Learner.update`).

    Raises:
        LearnerError: If there is nothing to train on, a loss is not finite, third-party code of the objective raises
            anything, or search chose responses and `update.search_rows` refuses them.
        ArtifactMissingError: If a dataset is not stored.
        ArtifactDamagedError: If a dataset differs from what was written.
    """
    config = update_config(settings)
    trajectories, kept_share = stored_trajectories(store, config.needs, inputs)
    chosen = [trajectory for trajectory in trajectories if (trajectory.turn_weights != 1).any()]
    if chosen and config.search_rows == "refuse":
        raise LearnerError(
            f"search chose responses of {len(chosen)} of {len(trajectories)} trajectories (first: "
            f"'{chosen[0].trajectory_id}'), and update.search_rows = 'refuse' does not train on them: set it to 'weigh'"
        )
    try:
        result = learner.update(trajectories, update_context(settings, seed, kept_share), on_progress)
    except StarPOError:
        raise
    except FOREIGN as error:  # an objective may be third-party code
        for role, target in update_code(config).items():
            module = target.partition(":")[0]
            if not module.startswith("starpo.") and is_raised_in(error, module):
                raise LearnerError(
                    f"the update failed in its {role} '{target}': {describe_fault(error, module)}. Nothing was stored"
                ) from error
        raise
    if result.metrics.get("update/old_is_from_rollout") == 0:
        _warn_of_gap(config.scored_share)
    return result


@cache  # it is so in every update of a run, or in none
def _warn_of_gap(scored_share: float) -> None:
    _log.warning(
        "log-probs of the rollout differ from those of the policy (metric update/old_behaviour_gap_max): its engine is "
        "not exact, as where dtypes of engine and learner differ, or an earlier policy played. All tokens are scored "
        "before each update; update.scored_share = %g applies to the pass after it alone",
        scored_share,
    )


def stored_trajectories(
    store: Store,
    needs: Collection[str],
    inputs: Mapping[str, str],
    *,
    should_keep_all: bool = False,
) -> tuple[list[Trajectory], float]:
    """Load the trajectories of an update.

    Args:
        store: Store of the datasets.
        needs: What the objectives need (`UpdateConfig.needs`): of what is loaded, kinds of tokens and components of the
            reward.
        inputs: Inputs of the stage `update`.
        should_keep_all: Take every group with a valid trajectory, whatever the filter kept.

    Returns:
        The trajectories, and the share of the groups that are kept.

    Raises:
        LearnerError: If tokens must be classified and no tokenizer of the policy can be read.
        ArtifactMissingError: If a dataset is not stored.
        ArtifactDamagedError: If a dataset differs from what was written.
    """
    turns, images = read_turns(store, inputs)
    rewards, selection = (read_attempts(store, kind, inputs) for kind in ("rewards", "selection"))
    if should_keep_all:
        is_valid = pc.greater(selection["num_valid"], 0)
        selection = selection.set_column(selection.schema.get_field_index("kept"), "kept", is_valid)
    spans = _spans(store, inputs) if "spans" in needs else None
    kept_share = pc.sum(selection["kept"].cast(pa.int64())).as_py() / max(selection.num_rows, 1)
    trajectories = assemble(turns, rewards, selection, spans, images)
    if "teacher" in needs:
        from starpo.ragen.learning.learners.data.taught import with_teacher

        trajectories = with_teacher(trajectories, read_attempts(store, "teacher_logprobs", inputs))
    if "top_tokens" in needs:
        from starpo.ragen.learning.learners.data.taught import with_top_tokens

        trajectories = with_top_tokens(trajectories, read_attempts(store, "teacher_top_tokens", inputs))
    if "credits" in needs:
        from starpo.ragen.learning.learners.data.credited import with_credits

        trajectories = with_credits(trajectories, store.read_table("credits", inputs["credits"]))
    if "components" in needs:
        from starpo.ragen.learning.learners.data.paid import with_components

        trajectories = with_components(trajectories, rewards)
    return trajectories, kept_share


def update_context(settings: Mapping[str, Any], seed: int, kept_share: float = 1.0) -> UpdateContext:
    """Build the context of an update from the settings of its stage, its seed and the share of kept groups."""
    iteration, num_iterations = settings["iteration"], settings["num_iterations"]
    return UpdateContext(
        iteration=iteration,
        num_iterations=iteration + 1 if num_iterations is None else num_iterations,  # None if no schedule reads it
        seed=seed,
        temperature=settings["temperature"],
        max_response_tokens=settings["max_response_tokens"],
        kept_share=kept_share,
    )


def update_config(settings: Mapping[str, Any]) -> UpdateConfig:
    """Extract the configuration from the settings of a stage `update`."""
    values = {name: value for name, value in settings.items() if name in UpdateConfig.model_fields}
    return UpdateConfig.model_validate_json(json.dumps(values))


def update_code(config: ObjectiveConfig) -> dict[str, str]:
    """Return role -> `module:attribute` of the code that the settings of an update name."""
    parts = {"advantage": ADVANTAGES[config.advantage], "surrogate": SURROGATES[config.surrogate]}
    parts |= {f"shaping:{name}": SHAPINGS[name] for name in config.shaping}
    if config.turn_order != "together":
        parts["turn_order"] = TURN_ORDERS[config.turn_order]
    parts |= {f"companion:{name}": code for name, code in _companion_code(config).items()}
    is_idle = {
        "kl": config.kl_coefficient == 0,
        "importance": not config.has_unit_importance,
        "entropy_target": config.entropy_target is None,
        "uncertain": config.uncertain_share == 1,
        "distillation": config.distillation_coefficient == 0,
        "divergence": not config.distills_top_tokens,
        "off_policy": config.negative_max_kl is None and not config.should_weigh_kl,
    }
    return parts | {role: code for role, code in LOSSES.items() if not is_idle.get(role, False)}


def _companion_code(config: ObjectiveConfig) -> dict[str, str]:
    """Return name -> `module:attribute` of the companions; those of the learners stand under the stage's version."""
    code = {name: COMPANIONS[name] for name in sorted(config.needs - NEEDS)}
    return {name: target for name, target in code.items() if not target.startswith("starpo.ragen.learning.")}


def _spans(store: Store, inputs: Mapping[str, str]) -> Spans:
    player = store.manifest("turns", inputs["turns"]).inputs.get("checkpoint")
    checkpoints = [inputs["checkpoint"], inputs.get("reference"), player, _kept_before(store, inputs["checkpoint"])]
    tokenizer = find_tokenizer(store, [key for key in checkpoints if key])
    if tokenizer is None:
        raise LearnerError(
            f"the objective separates reasoning from answers, but the tokenizer of checkpoint {inputs['checkpoint']} "
            "cannot be read (a `tokenizer.json` is needed): set update.loss_on and update.advantage_on to 'all', and "
            "choose an estimator that does not separate them"
        )
    return Spans(tokenizer.backend_tokenizer)


def _kept_before(store: Store, checkpoint: str) -> str | None:
    """Return the nearest checkpoint that is stored, from this one back; None if its line is lost."""
    while not store.has("checkpoint", checkpoint):
        made = how_made(store, checkpoint)
        if made is None or "checkpoint" not in made.inputs:
            return None
        checkpoint = made.inputs["checkpoint"]
    return checkpoint
