"""The first checkpoint of a run, as a flow of its own: its result is an artifact like any other."""

from typing import Any

from prefect import flow

from starpo.flows.presets import preset as load_preset
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.tasks.stage import stage_task
from starpo.tasks.warm_start import warm_start as first_checkpoint


@flow(name="warm-start", validate_parameters=True)
def warm_start(
    config: StarPOConfig | None = None,
    preset: str = "sokoban",
    overrides: dict[str, Any] | None = None,
    store: str | None = None,
) -> str:
    """Make the warm-started policy of this configuration, unless the store has it.

    Args:
        config: All settings; a deployment fills in its preset's. None: those of the preset.
        preset: What the settings are called.
        overrides: Single settings by dotted path.
        store: Store URL. None: the one of the serving process (RAGEN_STORE).

    Returns:
        Key of the checkpoint artifact.
    """
    config = apply_overrides(config or load_preset(preset), overrides or {})
    work = first_checkpoint(config)
    return stage_task(work, "warm start")(store or Runtime.current().store, work)["checkpoint"]
