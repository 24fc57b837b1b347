"""The first checkpoint of a run, as a separate flow; its result is an artifact like any other."""

from typing import Any

from prefect import flow

from starpo.flows.presets import preset as load_preset
from starpo.ragen.config.runtime import Runtime
from starpo.tasks.stage import stage_task
from starpo.tasks.warm_start import stored_lessons
from starpo.tasks.warm_start import warm_start as first_checkpoint


@flow(name="warm-start", validate_parameters=True)
def warm_start(
    preset: str = "sokoban",
    overrides: dict[str, Any] | None = None,
    store: str | None = None,
) -> str:
    """Create the warm-started policy of this configuration, unless it is stored.

    Args:
        preset: A preset, or a TOML file of settings.
        overrides: Individual settings by dotted path.
        store: Store URL. None for that of the serving process (RAGEN_STORE).

    Returns:
        Key of the checkpoint artifact.
    """
    config, store = load_preset(preset, overrides), store or Runtime.current().store
    work = first_checkpoint(config, stored_lessons(config.policy, store))
    return stage_task(work, "warm start")(store, work)["checkpoint"]
