"""A run in this process, without a server: its record is that of the flow (`test_local_training.py`), in less time."""

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.runs.execution import InProcess
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Store
from starpo.tasks.loop.run import carry_out_run


def train_run(config: StarPOConfig, *, store: str, run: str, preset: str = "smoke") -> str:
    """Begin a run, or continue the one of this name, and train to its end; returns the name of the run that ended."""
    with ModelPlacement() as placement:
        return carry_out_run(Store(store).address, run, preset, config, InProcess(placement))
