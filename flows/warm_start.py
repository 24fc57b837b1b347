"""The first checkpoint of a run, as a flow of its own: its result is an artifact like any other."""

from typing import Any

from prefect import flow

from ragen.config.load import apply_overrides
from ragen.config.runtime import Runtime
from ragen.config.starpo import StarPOConfig
from tasks.warm_start import warm_start as make_checkpoint


@flow(name="warm-start", validate_parameters=True)
def warm_start(config: StarPOConfig, overrides: dict[str, Any] | None = None, store: str | None = None) -> str:
    """Make the warm-started policy of this configuration, unless the store has it.

    Returns:
        Key of the checkpoint artifact.
    """
    key: str = make_checkpoint(store or Runtime().store, apply_overrides(config, overrides or {}))["checkpoint"]
    return key
