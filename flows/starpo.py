"""The flow `starpo`: check the settings and carry out the run (`tasks.loop.run`) as Prefect tasks."""

from typing import Any

from prefect import flow

from starpo.flows.prefect_execution import InPrefect
from starpo.flows.presets import preset as load_preset
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.settings import described_by_name
from starpo.ragen.readiness import check_ready
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Store
from starpo.tasks.loop.memory_check import check_memory
from starpo.tasks.loop.run import carry_out_run
from starpo.tasks.loop.run_code import default_run_name

with described_by_name():  # the decorator makes a schema, which nobody reads: a deployment makes its own

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
        """Train an agent with StarPO; every stage is stored, and stored stages are not repeated.

        Args:
            config: All settings; a deployment fills in those of its preset. None for those of the preset.
            preset: Label of the settings; also the preset to load if `config` is None.
            overrides: Individual settings by dotted path, such as {"filter.keep": 0.25}.
            seed: Shorthand for overriding `seed`.
            iterations: Shorthand for overriding `iterations`.
            store: Store URL. None for that of the serving process (STARPO_STORE).
            run: Name of the run. None to derive it from preset, seed, settings and code, so that the same ones continue
                the same run.

        Returns:
            The run's name; after a rollback, the name of the fork that it ended as.
        """
        short = {"seed": seed, "iterations": iterations}
        config = apply_overrides(
            config or load_preset(preset), {**(overrides or {}), **{k: v for k, v in short.items() if v is not None}}
        )
        check_memory(config)
        url, name = store or Runtime.current().store, run or default_run_name(preset, config)
        check_ready(config, preset, should_download=True, store=Store(url))
        with ModelPlacement() as placement:
            return carry_out_run(url, name, preset, config, InPrefect(placement))
