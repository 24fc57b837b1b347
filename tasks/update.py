"""checkpoint, turns, rewards, selection -> checkpoint, samples, metrics."""

from ragen.checkpoints.stored_update import run_update, update_code
from ragen.config.update import UpdateConfig
from ragen.diagnostics.metrics import metrics_table
from ragen.store import Store
from schemas.manifest import Stage
from tasks.stage import Keys, StageWork, stage_task

STAGE = Stage(name="update", version=2)
OUTPUTS = ("samples", "metrics", "checkpoint")


@stage_task(name="update", task_run_name="{iteration:03d} update")
def update(
    store_url: str,
    config: UpdateConfig,
    *,
    iteration: int,
    num_iterations: int,
    seed: int,
    temperature: float,
    max_response_tokens: int,
    checkpoint: str,
    reference: str,
    turns: str,
    rewards: str,
    selection: str,
) -> Keys:
    """Train the checkpoint on the selected groups.

    Raises:
        LearnerError: If the selection is empty, or a loss is not finite.
    """
    store = Store(store_url)
    is_scheduled = config.optimiser.decay != "constant" or config.critic.optimiser.decay != "constant"
    settings = {
        **config.effective(),
        "iteration": iteration,
        "num_iterations": num_iterations if is_scheduled else None,
        "temperature": temperature,
        "max_response_tokens": max_response_tokens,
    }
    inputs = {"checkpoint": checkpoint, "turns": turns, "rewards": rewards, "selection": selection}
    if config.kl_coefficient > 0:
        inputs["reference"] = reference
    work = StageWork(store, STAGE, settings, inputs, seed, update_code(config))
    if not work.is_stored(*OUTPUTS):
        _train(work, config)
    return dict.fromkeys(OUTPUTS, work.key)


def _train(work: StageWork, config: UpdateConfig) -> None:
    from tasks.warm_processes import learner_at

    assert work.seed is not None
    learner = learner_at(work.store, work.inputs["checkpoint"], config, work.inputs.get("reference"))
    result = run_update(work.store, learner, work.settings, work.inputs, work.seed)
    kept = {"is_deterministic": learner.is_deterministic}
    with work.store.new_folder() as folder:
        learner.save(str(folder), work.key)
        work.put_folder("checkpoint", folder, headline=result.metrics, provenance={"timings": result.timings}, **kept)
    work.put_table("metrics", metrics_table(work.settings["iteration"], STAGE.name, result.metrics), **kept)
    work.put_table("samples", result.samples, **kept)
