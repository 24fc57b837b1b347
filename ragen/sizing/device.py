"""The machine that a run is planned for: this one, or one of a given memory.

nvidia-smi, or the host's memory --> Machine
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import ConfigError

GIB = 2**30
MIB = 2**20
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(GB|GiB|G|MB|MiB|M)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Machine:
    """GPUs, or the CPU, to run on.

    Attributes:
        memory_bytes: Memory of one GPU; for a CPU, of the machine.
        number: Number of GPUs; for a CPU, number of cores that rollouts and updates use.
        is_cpu: Whether the CPU computes.
    """

    memory_bytes: float
    number: int
    is_cpu: bool = False


def parse_bytes(text: str) -> float:
    """Parse an amount of memory such as `80GB`; GB means GiB, as GPU vendors count.

    Raises:
        ConfigError: If the text is not an amount of memory.
    """
    match = _SIZE.fullmatch(text)
    if not match or float(match[1]) <= 0:
        raise ConfigError(f"'{text}' is not an amount of memory; expected a number of gigabytes such as 80GB or 24")
    return float(match[1]) * (MIB if (match[2] or "G").upper().startswith("M") else GIB)


def this_machine() -> Machine:
    """Return the GPUs of this machine, or its CPU if it has none, without initialising CUDA."""
    gpus = _gpu_memories()
    return Machine(min(gpus), len(gpus)) if gpus else this_cpu()


def this_cpu() -> Machine:
    """Return the CPU of this machine, whether or not it has GPUs."""
    return Machine(host_memory(), Runtime.current().threads, is_cpu=True)


def host_memory() -> float:
    """Return the memory of this machine, or the limit of its container if that is lower."""
    total = float(psutil.virtual_memory().total)
    try:
        limit = _CGROUP.read_text().strip()
    except OSError:
        return total
    return min(total, float(limit)) if limit.isdigit() else total


def _gpu_memories() -> list[float]:
    program = shutil.which("nvidia-smi")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if program is None or visible in ("", "-1"):
        return []
    command = [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    if visible is not None:
        command.append(f"--id={visible}")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        return [float(line) * MIB for line in answer.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
