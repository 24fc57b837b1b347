"""One stage of a run again, as the training flow would do it: its task called as a plain function.

visit, configuration, inputs -> task -> keys of what it made
"""

from collections.abc import Mapping

from ragen.config.environment import EnvironmentConfig
from ragen.config.starpo import StarPOConfig
from ragen.errors import ConfigError
from ragen.seeding import derive_seed
from ragen.verify.finding import shown
from ragen.verify.plan import INPUTS, Visit
from tasks import evaluate, reward, rollout, update, variance_filter, warm_start
from tasks.stage import Keys

VERSIONS = {
    module.STAGE.name: module.STAGE.version
    for module in (warm_start, evaluate, rollout, reward, variance_filter, update)
}
"""Stage -> the version that this release has."""


def recompute(
    visit: Visit, config: StarPOConfig, store_url: str, inputs: Mapping[str, str], lineage: str | None = None
) -> Keys:
    """Do a stage's work again.

    Args:
        visit: Which stage of which iteration.
        config: The run's.
        store_url: A store with the inputs and without the outputs, where the outputs go.
        inputs: Role -> key; roles that the stage does not have are passed over.
        lineage: The store in which an evaluation looks up what its checkpoint was trained on. None: the same.

    Raises:
        ConfigError: If the run's settings do not know the cell that was evaluated.
        StarPOError: Whatever the stage raises.
    """
    from ragen.policy.load import without_progress_bars

    given = {role: inputs.get(role, "") for role in INPUTS[visit.stage]}
    iteration = visit.iteration
    with without_progress_bars():
        match visit.stage:
            case "warm_start":
                return warm_start.warm_start.fn(store_url, config)
            case "evaluate":
                environment = environment_of(visit, config)
                settings = (environment, config.agent, config.rollout, config.evaluation)
                return evaluate.evaluate.fn(store_url, iteration, visit.cell, *settings, **given, lineage=lineage)
            case "rollout":
                return rollout.rollout.fn(store_url, iteration, config, **given)
            case "reward":
                return reward.reward.fn(store_url, iteration, config.reward, **given)
            case "variance_filter":
                return variance_filter.variance_filter.fn(store_url, iteration, config.filter, **given)
            case "update":
                return update.update.fn(
                    store_url,
                    config.update,
                    iteration=iteration,
                    num_iterations=config.iterations,
                    seed=derive_seed(config.seed, "update", iteration),
                    temperature=config.rollout.temperature,
                    max_response_tokens=config.rollout.max_response_tokens,
                    **given,
                )
    raise AssertionError(visit.stage)


def environment_of(visit: Visit, config: StarPOConfig) -> EnvironmentConfig:
    """Settings of the environment that an evaluation played.

    Raises:
        ConfigError: If the run's settings do not know its cell.
    """
    cells = config.panels
    if visit.cell not in cells:
        raise ConfigError(f"the run's settings know no cell {shown(visit.cell)}; cells: {', '.join(cells)}")
    return cells[visit.cell]
