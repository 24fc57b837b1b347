"""Permissions that bind root too."""

import ctypes
import os


def obey_permissions() -> None:
    """In a process about to start: give up the capabilities that override what a folder permits."""
    if os.geteuid() == 0:
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            ctypes.CDLL(None, use_errno=True).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP
