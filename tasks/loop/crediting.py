"""`credited`: the true credit of an iteration's kept turns, where the update's estimator trains on it.

who played, turns, rewards, selection -> tasks.credit, its first round -> credits: data of the update
"""

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.learning.control.standstill import NUM_KEPT
from starpo.ragen.runs.work import Keys
from starpo.ragen.store.attempts import played_data
from starpo.tasks.credit import Choice, credit
from starpo.tasks.loop.runner import Runner


def credited(
    runner: Runner, iteration: int, config: StarPOConfig, played: StarPOConfig, checkpoint: str, data: Keys
) -> Keys:
    """Measure the credit of every turn of the groups that the filter kept, with a fixed number of continuations.

    Args:
        runner: Carries out the stage, or only derives its key.
        iteration: Updates completed before it.
        config: Settings of the iteration.
        played: Settings of the iteration whose rollout it is (Online-k).
        checkpoint: Key of the policy that played it.
        data: Role -> key of turns, rewards and selection of all attempts; more may be in it.

    Returns:
        `credits` and their key; empty if nothing was kept.
    """
    if runner.metric(iteration, NUM_KEPT) == 0:
        return {}
    settings = played.model_copy(update={"reward": config.reward})
    progress = runner.progress.counting("shard") if runner.progress else None
    number, rollout = config.update.num_continuations, played_data(data)
    work = credit(settings, checkpoint, rollout, Choice(), first=number, is_trained_on=True, on_progress=progress)
    return runner.stage(iteration, work)
