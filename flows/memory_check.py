"""Does a run fit this machine? Asked before anything is started, of `ragen train` and of every deployment's process."""

import os

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import PolicyError
from starpo.ragen.evidence.sizing.architecture import architecture_of
from starpo.ragen.evidence.sizing.device import host_memory, this_machine
from starpo.ragen.evidence.sizing.fit import check_fits


def check_memory(config: StarPOConfig) -> None:
    """Refuse a run that this machine has not the memory for.

    Nothing is refused where RAGEN_SHOULD_CHECK_MEMORY is false, where a Ray cluster does the work (RAY_ADDRESS), whose
    memory is not known here, or where the policy's sizes are not known.

    Raises:
        DoesNotFitError: With what it needs, what there is, and what to change.
    """
    runtime = Runtime.current()
    if not runtime.should_check_memory or "RAY_ADDRESS" in os.environ:
        return
    try:
        architecture = architecture_of(config.policy)
    except PolicyError:  # whatever is wrong with it, loading it says so better
        return
    for phase in config.phases:
        check_fits(phase, architecture, this_machine(runtime.threads), host_memory())
