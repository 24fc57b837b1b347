"""The stage `objectives` measures at the update's position in the run."""

import pytest

from starpo.flows.presets import preset
from starpo.ragen.learning.learners.models.optimisers import learning_rate_factor
from starpo.ragen.runs.update import update_context
from starpo.tasks.objectives import objectives
from starpo.tasks.update import update

DATA = {"turns": "t", "rewards": "r", "selection": "s"}


@pytest.mark.parametrize("decay", ["constant", "linear"])
def test_prm_learning_rate_matches_update(decay: str) -> None:
    settings = {"iterations": 10, "update.advantage": "istar", "update.advantage_scale": "none"}
    config = preset("smoke", settings | {"update.optimiser.decay": decay})
    measured = objectives(config, {"run": config.update}, 4, "checkpoint", "first", **DATA)
    updated = update(config, 4, "checkpoint", "first", DATA)
    contexts = [update_context(work.settings, 0) for work in (measured, updated)]
    factors = [learning_rate_factor(config.update.optimisers["prm"], c.iteration, c.num_iterations) for c in contexts]
    assert factors[0] == factors[1]


def test_key_without_steps_ignores_iterations() -> None:
    works = [
        objectives(config, {"run": config.update}, 4, "checkpoint", "first", **DATA)
        for config in (preset("smoke", {"iterations": number}) for number in (10, 20))
    ]
    assert works[0].key == works[1].key
