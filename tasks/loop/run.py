"""A training run from its first stage to its end, whatever carries out its stages.

name, settings --RunRecorder, tasks.loop.training--> record, artifacts

If its settings demand it, a run that collapses continues as a fork (`tasks.loop.rollback`).
"""

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import CollapsedError
from starpo.ragen.runs.execution import Execution
from starpo.ragen.store import Store
from starpo.tasks.loop.record import RunRecorder
from starpo.tasks.loop.reuse import reused
from starpo.tasks.loop.rollback import rolled_back
from starpo.tasks.loop.run_code import code_of
from starpo.tasks.loop.training import train


def carry_out_run(url: str, name: str, preset: str, config: StarPOConfig, execution: Execution) -> str:
    """Begin a run, or continue the one of this name, report what it reuses, and train to its end.

    Args:
        url: URL of the store.
        name: The run's name.
        preset: Label of the settings.
        config: The settings.
        execution: Carries out its stages.

    Returns:
        The run's name; after a rollback, the name of the fork that it ended as.

    Raises:
        StoreError: If the name is taken by a run with other settings or code, or another process works on the run.
        RunStoppedError: If it ends early because of what it measured.
    """
    while True:
        try:
            with RunRecorder.open(
                url, name, flow="starpo", preset=preset, config=config, code=code_of(config), execution=execution
            ) as record:
                record.tell(str(reused(Store(url), name, config)))
                train(record, config)
        except CollapsedError as error:
            if (again := rolled_back(name, config, error.healthy)) is None:
                raise
            name, config = again
        else:
            return name
