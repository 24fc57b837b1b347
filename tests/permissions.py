"""File permissions that also apply to root."""

import ctypes
import os


def obey_permissions() -> None:
    """Drop the capabilities that override file permissions; for use as `preexec_fn` of a subprocess."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None, use_errno=True).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
