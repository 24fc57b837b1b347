"""checkpoint, turns, rewards, selection -> metrics of the gradients that other objectives would have had."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.update import stored_trajectories, update_code
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage

STAGE = Stage(name="objectives", version=3)


def objectives(
    config: StarPOConfig,
    configs: Mapping[str, UpdateConfig],
    iteration: int,
    checkpoint: str,
    reference: str,
    **data: str,
) -> Work:
    """Measure the gradients of several objectives on an update's inputs, without an optimiser step.

    Args:
        config: Settings of the iteration.
        configs: Name of an objective -> its settings; at least one.
        iteration: Updates completed before it.
        checkpoint: Key of the policy that is about to be updated. It must have the trained companions that
            the objectives need.
        reference: Key of the run's first checkpoint, the reference of a KL penalty.
        data: Role -> key of the update's inputs: turns, rewards and selection of all attempts.

    Raises:
        LearnerError: When carried out, if there is nothing to train on, or a loss is not finite.
    """
    return Work(
        STAGE,
        ("metrics",),
        partial(_measure, dict(configs)),
        **before_update(config, configs, iteration, checkpoint, reference, data),
    )


def before_update(
    config: StarPOConfig,
    configs: Mapping[str, UpdateConfig],
    iteration: int,
    checkpoint: str,
    reference: str,
    data: Mapping[str, str],
) -> dict[str, Any]:
    """Return settings, inputs and code of work that prepares an update by several objectives, and takes no step.

    Arguments are those of `objectives`.
    """
    # only companions that are trained before the policy take a step, that of the update
    early = [
        (one, objective) for objective in configs.values() for one in objective.companions if one.passes.trained_before
    ]
    is_scheduled = any(one.optimiser(objective).decay != "constant" for one, objective in early)
    settings = {
        "objectives": {name: objective.effective() for name, objective in configs.items()},
        "iteration": iteration,
        "num_iterations": config.iterations if is_scheduled else None,
        "temperature": config.rollout.temperature,
        "max_response_tokens": config.rollout.max_response_tokens,
    }
    inputs = {"checkpoint": checkpoint, **data}
    if any(objective.needs_first_checkpoint for objective in configs.values()):
        inputs["reference"] = reference
    code = {
        f"{name}:{role}": target
        for name, objective in configs.items()
        for role, target in update_code(objective).items()
    }
    return {"settings": settings, "inputs": inputs, "code": code}


def _measure(
    configs: Mapping[str, UpdateConfig], work: Work, store: Store, placement: ModelPlacement
) -> Iterator[Output]:
    from starpo.ragen.learning.learners.measuring import able_to_measure, measured_objectives
    from starpo.ragen.learning.metrics.objectives import objective_metrics
    from starpo.ragen.learning.metrics.table import metrics_table
    from starpo.ragen.runs.update import update_context

    able = able_to_measure(list(configs.values()))
    learner = placement.learner.at(store, work.inputs["checkpoint"], able, work.inputs.get("reference"))
    needs = {need for objective in configs.values() for need in objective.needs}
    trajectories, kept_share = stored_trajectories(store, needs, work.inputs)
    context = update_context(work.settings, seed=0, kept_share=kept_share)  # no step is taken, so nothing is shuffled
    measurement = measured_objectives(learner, trajectories, context, list(configs.values()))
    table = metrics_table(work.settings["iteration"], STAGE.name, objective_metrics(list(configs), measurement))
    yield Output("metrics", table, is_deterministic=learner.is_deterministic)
