"""checkpoint, turns, rewards, selection, what was measured of them -> checkpoint, samples, trained_tokens, metrics."""

from collections.abc import Iterator, Mapping
from functools import partial

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.update import run_update, update_code, update_config
from starpo.ragen.runs.work import Dropped, Output, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import kind_of
from starpo.schemas.manifest import Stage
from starpo.tasks.progress import RunProgress

STAGE = Stage(name="update", version=4)
_MEASURED = {"teacher_logprobs": "teacher", "teacher_top_tokens": "top_tokens", "credits": "credits"}
"""Kind of what may have been measured on the rollout -> the need of objectives that read it."""


def update(
    config: StarPOConfig,
    iteration: int,
    checkpoint: str,
    reference: str,
    data: Mapping[str, str],
    progress: RunProgress | None = None,
    *,
    is_kept: bool = True,
) -> Work:
    """Train a checkpoint on the selected groups.

    Args:
        config: Settings of the iteration.
        iteration: Updates completed before it.
        checkpoint: Key of the checkpoint to train.
        reference: Key of the run's first checkpoint, the reference of a KL penalty.
        data: Role -> key of the training data: turns, rewards and selection of all attempts, what a teacher says of
            them, and their credit.
        progress: Receives its progress.
        is_kept: Whether the new checkpoint is written. If not, it is recorded, never written, provided that it can be
            derived again, and that all who play its policy are on this machine.

    Raises:
        LearnerError: When carried out, if the selection is empty, or a loss is not finite.
    """
    objective = config.update
    is_scheduled = any(optimiser.decay != "constant" for optimiser in objective.optimisers.values())
    settings = {
        **objective.effective(),
        "iteration": iteration,
        "num_iterations": config.iterations if is_scheduled else None,
        "temperature": config.rollout.temperature,
        "max_response_tokens": config.rollout.max_response_tokens,
    }
    unused = {kind for kind, need in _MEASURED.items() if need not in objective.needs}
    used = {role: key for role, key in data.items() if kind_of(role) not in unused}
    inputs = {"checkpoint": checkpoint, **used}
    if objective.needs_first_checkpoint:
        inputs["reference"] = reference
    seed = derive_seed(config.seed, "update", iteration)
    tokens = ("trained_tokens",) if config.diagnostics.should_store_tokens else ()
    outputs = ("samples", *tokens, "metrics", "checkpoint")
    do = partial(_train, progress, is_kept)
    return Work(STAGE, outputs, do, settings, inputs, seed, update_code(objective))


def _train(
    progress: RunProgress | None, is_kept: bool, work: Work, store: Store, placement: ModelPlacement
) -> Iterator[Output]:
    assert work.seed is not None
    config = update_config(work.settings)
    learner = placement.learner.at(store, work.inputs["checkpoint"], config, work.inputs.get("reference"))
    on_progress = progress.counting("pass") if progress else None
    result = run_update(store, learner, work.settings, work.inputs, work.seed, on_progress)
    repeats = learner.is_deterministic
    facts = result.metrics, {"timings": result.timings}, repeats
    if is_kept or not repeats or placement.players.are_elsewhere:
        with store.new_folder() as folder:
            learner.save(str(folder), work.key)
            yield Output("checkpoint", folder, *facts)
    else:
        from starpo.ragen.runs.derive import new_policy

        with new_policy(placement.learner.policies, store, learner, work.key, like=work.inputs["checkpoint"]) as files:
            yield Output("checkpoint", Dropped(files), *facts)
    yield Output(
        "metrics", metrics_table(work.settings["iteration"], STAGE.name, result.metrics), is_deterministic=repeats
    )
    if "trained_tokens" in work.outputs:
        if result.trained_tokens is None:
            raise LearnerError("this learner notes nothing by token: set diagnostics.should_store_tokens = false")
        yield Output("trained_tokens", result.trained_tokens(), is_deterministic=repeats)
    yield Output("samples", result.samples, is_deterministic=repeats)
