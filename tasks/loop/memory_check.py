"""Check that a run fits into this machine's memory, before `starpo train` or the process of a deployment starts it."""

import os
import resource

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import PolicyError
from starpo.ragen.sizing.architecture import architecture_of
from starpo.ragen.sizing.device import GIB, host_memory, this_machine
from starpo.ragen.sizing.fit import DoesNotFitError, check_fits

_ADDRESS_SPACE = 3 * GIB
"""Least address space of a process: torch, Arrow and threads reserve much more than they use. The preset `smoke` ends
in MemoryError under 2 GiB and completes under 3 GiB."""


def check_memory(config: StarPOConfig) -> None:
    """Refuse a run that needs more memory than this machine has.

    The check is skipped if STARPO_SHOULD_CHECK_MEMORY is false, if a Ray cluster does the work (RAY_ADDRESS), whose
    memory is unknown here, or if the policy's sizes are unknown.

    Raises:
        DoesNotFitError: With the required and the available memory, and what makes a run smaller; or because the
            address space of processes is limited too much (`ulimit -v`).
    """
    runtime = Runtime.current()
    if not runtime.should_check_memory or "RAY_ADDRESS" in os.environ:
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _ADDRESS_SPACE:
        raise DoesNotFitError(
            f"each process may have {limit / GIB:.1f} GiB of address space (`ulimit -v`), and one of a run needs at "
            f"least {_ADDRESS_SPACE / GIB:.0f} GiB: run `ulimit -v unlimited` and, if the serving process was started "
            "under this limit, `starpo down`; then train again. STARPO_SHOULD_CHECK_MEMORY=false starts the run anyway"
        )
    try:
        architecture = architecture_of(config)
    except PolicyError:  # loading the policy gives a better error message
        return
    for phase in config.phases:
        check_fits(phase, architecture, this_machine(), host_memory())
