"""Initial states that a run's training never starts from: those of its evaluation panels."""

from starpo.ragen.agents.evaluation.panel import Panel, panel_of
from starpo.ragen.config.starpo import StarPOConfig


def held_out(config: StarPOConfig) -> list[Panel]:
    """Return the panels whose initial states are held out: the training environment's and the variants'."""
    return [panel_of(environment, config.evaluation) for environment in config.panels.values()]


def held_out_digests(config: StarPOConfig) -> list[str]:
    """Return the digests of these panels, sorted, as they count in the settings of a stage."""
    return sorted({panel.digest for panel in held_out(config)})
