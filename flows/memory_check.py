"""Check that a run fits into this machine's memory, before `ragen train` or the process of a deployment starts it."""

import os

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import PolicyError
from starpo.ragen.evidence.sizing.architecture import architecture_of
from starpo.ragen.evidence.sizing.device import host_memory, this_machine
from starpo.ragen.evidence.sizing.fit import check_fits


def check_memory(config: StarPOConfig) -> None:
    """Refuse a run that needs more memory than this machine has.

    The check is skipped if RAGEN_SHOULD_CHECK_MEMORY is false, if a Ray cluster does the work (RAY_ADDRESS), whose
    memory is unknown here, or if the policy's sizes are unknown.

    Raises:
        DoesNotFitError: With the required and the available memory, and settings that would fit.
    """
    runtime = Runtime.current()
    if not runtime.should_check_memory or "RAY_ADDRESS" in os.environ:
        return
    try:
        architecture = architecture_of(config)
    except PolicyError:  # loading the policy gives a better error message
        return
    for phase in config.phases:
        check_fits(phase, architecture, this_machine(runtime.threads), host_memory())
