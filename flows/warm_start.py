"""The first checkpoint of a run, as a flow of its own: its result is an artifact like any other."""

from typing import Any

from prefect import flow

from starpo.flows.presets import preset as load_preset
from starpo.ragen.config.runtime import Runtime
from starpo.tasks.stage import stage_task
from starpo.tasks.warm_start import warm_start as first_checkpoint


@flow(name="warm-start", validate_parameters=True)
def warm_start(
    preset: str = "sokoban",
    overrides: dict[str, Any] | None = None,
    store: str | None = None,
) -> str:
    """Make the warm-started policy of this configuration, unless the store has it.

    Args:
        preset: A preset, or a TOML file of settings.
        overrides: Single settings by dotted path.
        store: Store URL. None: the one of the serving process (RAGEN_STORE).

    Returns:
        Key of the checkpoint artifact.
    """
    work = first_checkpoint(load_preset(preset, overrides))
    return stage_task(work, "warm start")(store or Runtime.current().store, work)["checkpoint"]
