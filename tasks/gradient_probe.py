"""checkpoint, turns, rewards, selection -> metrics of which groups' gradients are signal and which are noise."""

from collections.abc import Iterator
from functools import partial

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import read_attempts
from starpo.schemas.manifest import Stage
from starpo.tasks.update import update

STAGE = Stage(name="gradient_probe", version=2)


def gradient_probe(config: StarPOConfig, iteration: int, checkpoint: str, reference: str, **data: str) -> Work:
    """Measure the initial gradients of an update on all groups, bucketed by reward std.

    Args:
        config: Settings of the iteration.
        iteration: Updates completed before it.
        checkpoint: Key of the policy that is about to be updated.
        reference: Key of the run's first checkpoint, the reference of a KL penalty.
        data: Role -> key of turns, rewards and selection of all attempts. Groups that the filter dropped are measured
            too.

    Raises:
        LearnerError: When carried out, if a loss is not finite.
    """
    like = update(config, iteration, checkpoint, reference, data)
    return Work(STAGE, ("metrics",), partial(_probe, config.update), like.settings, like.inputs, like.seed, like.code)


def _probe(config: UpdateConfig, work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
    from starpo.ragen.learning.learners.measuring import able_to_measure, gradient_spreads
    from starpo.ragen.learning.metrics.gradients import buckets, gradient_metrics
    from starpo.ragen.learning.metrics.table import metrics_table
    from starpo.ragen.runs.update import stored_trajectories, update_context

    selection = read_attempts(store, "selection", work.inputs)
    groups = buckets(selection)
    learner = placement.learner.at(
        store, work.inputs["checkpoint"], able_to_measure([config]), work.inputs.get("reference")
    )
    assert work.seed is not None
    trajectories, kept_share = stored_trajectories(store, config.needs, work.inputs, should_keep_all=True)
    values: dict[str, float] = {}
    if any(trajectory.num_response_tokens for trajectory in trajectories):  # else all ended in errors
        context = update_context(work.settings, work.seed, kept_share)
        spreads = gradient_spreads(learner, trajectories, context, groups)
        values = gradient_metrics(selection, groups, spreads)
    table = metrics_table(work.settings["iteration"], STAGE.name, values)
    yield Output("metrics", table, is_deterministic=learner.is_deterministic)
