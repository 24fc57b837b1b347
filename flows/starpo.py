"""The flow `starpo`: check, begin or continue the run, say what is reused, train (`flows.training`).

A run that collapses goes on as a fork, where its settings say so (`flows.rollback`).
"""

from typing import Any

from prefect import flow

from starpo.flows.memory_check import check_memory
from starpo.flows.presets import preset as load_preset
from starpo.flows.record import RunRecorder
from starpo.flows.reuse import reused
from starpo.flows.rollback import rolled_back
from starpo.flows.run_code import code_of, default_run_name
from starpo.flows.training import train
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import CollapsedError
from starpo.ragen.readiness import check_ready
from starpo.ragen.store import Store


@flow(name="starpo", log_prints=False, validate_parameters=True)
def starpo(
    config: StarPOConfig | None = None,
    preset: str = "sokoban",
    overrides: dict[str, Any] | None = None,
    seed: int | None = None,
    iterations: int | None = None,
    store: str | None = None,
    run: str | None = None,
) -> str:
    """Train an agent with StarPO; every stage is stored, and what is stored is not done again.

    Args:
        config: All settings; a deployment fills in its preset's. None: those of the preset.
        preset: What the settings are called.
        overrides: Single settings by dotted path, such as {"filter.keep": 0.25}.
        seed: Short for overrides of `seed`.
        iterations: Short for overrides of `iterations`.
        store: Store URL. None: the one of the serving process (RAGEN_STORE).
        run: Name of the run. None: made of preset, seed, settings and code; the same of them continue the same run.

    Returns:
        The run's name; of one that was rolled back, that of the fork it ended as.
    """
    short = {"seed": seed, "iterations": iterations}
    config = apply_overrides(
        config or load_preset(preset), {**(overrides or {}), **{k: v for k, v in short.items() if v is not None}}
    )
    check_memory(config)
    check_ready(config, preset, should_download=True)
    url, name = store or Runtime.current().store, run or default_run_name(preset, config)
    while True:
        try:
            with RunRecorder.open(
                url, name, flow="starpo", preset=preset, config=config, code=code_of(config)
            ) as record:  # fmt: skip
                record.tell(str(reused(Store(url), name, config)))
                train(record, config)
        except CollapsedError as error:
            if (again := rolled_back(name, config, error.healthy)) is None:
                raise
            name, config = again
        else:
            return name
