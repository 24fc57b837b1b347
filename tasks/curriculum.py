"""curriculum of the latest rollout, its selections -> curriculum of the next: the share of each level; and metrics."""

from collections.abc import Iterator, Sequence

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.registry import CURRICULA
from starpo.ragen.envs.mixture.environment import MixtureSettings
from starpo.ragen.envs.mixture.levels import LevelsSettings
from starpo.ragen.learning.levels import curriculum_metrics, next_curriculum
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import numbered
from starpo.schemas.manifest import Stage

STAGE = Stage(name="curriculum", version=1)


def curriculum(iteration: int, config: StarPOConfig, earlier: str, selections: Sequence[str]) -> Work:
    """Compute how often the rollout of an iteration plays each level, from all groups that were played before.

    Args:
        iteration: Updates completed before that rollout is first used.
        config: Settings of the run, with a curriculum.
        earlier: Key of the curriculum of the rollout before it; "" for the first.
        selections: Keys of the selections of all attempts of that rollout, in order.
    """
    rule, environment = config.curriculum, config.environment
    assert rule is not None
    assert isinstance(environment, MixtureSettings | LevelsSettings), "the settings were checked"
    bases = {tag: environment.parts[tag].share for tag in rule.order(config.tags)}

    def do(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
        before = store.read_table("curriculum", earlier) if earlier else None
        table = next_curriculum(bases, rule, before, [store.read_table("selection", key) for key in selections])
        values = curriculum_metrics(table)
        yield Output("metrics", metrics_table(iteration, STAGE.name, values))
        yield Output("curriculum", table, values)

    settings = {
        "iteration": iteration,
        "curriculum": rule.model_dump(mode="json", exclude={"levels"}),
        "levels": [[tag, share] for tag, share in bases.items()],
    }
    inputs = {numbered("selection", attempt): key for attempt, key in enumerate(selections)} if earlier else {}
    inputs |= {"curriculum": earlier} if earlier else {}
    return Work(STAGE, ("curriculum", "metrics"), do, settings, inputs, code={"curriculum": CURRICULA[rule.type]})
