"""What a device has, and which ones this machine has.

name of the table, or this machine --> Machine(device, how many)
"""

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from starpo.ragen.config.explanation import near
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.sizing.memory import DType

GIB = 2**30
_TABLE = Path(__file__).parent / "data" / "devices.json"
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(GB|GiB|G|MB|MiB|M)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Device:
    """A kind of GPU, or a CPU's core.

    Attributes:
        name: As in the table.
        memory_bytes: Of one; of a CPU: of the machine.
        bandwidth_bytes_s: Of its memory.
        flops: Operations a second at most, by arithmetic; of a CPU: a core's.
        training_share: Assumed share of these that training reaches.
        decoding_share: Assumed share of the bandwidth that decoding reaches.
    """

    name: str
    memory_bytes: float
    bandwidth_bytes_s: float
    flops: dict[DType, float]
    training_share: float
    decoding_share: float

    @property
    def is_cpu(self) -> bool:
        """Is it a CPU's core?"""
        return self.name == "cpu"


@dataclass(frozen=True)
class Machine:
    """Devices to run on.

    Attributes:
        device: What kind.
        number: How many GPUs; of a CPU: how many cores are used.
    """

    device: Device
    number: int


@cache
def devices() -> dict[str, Device]:
    """Name -> device, by the makers' data sheets; the shares are assumptions, for `--training-share` to change."""
    table: dict[str, dict[str, Any]] = json.loads(_TABLE.read_text())
    return {
        name: Device(
            name,
            memory_bytes=row["memory_gib"] * GIB,
            bandwidth_bytes_s=row["bandwidth_gb_s"] * 1e9,
            flops={dtype: tflops * 1e12 for dtype, tflops in row["tflops"].items()},
            training_share=row["training_share"],
            decoding_share=row["decoding_share"],
        )
        for name, row in table.items()
    }


def device(name: str, memory_bytes: float | None = None) -> Device:
    """A device of the table.

    Args:
        name: Its name.
        memory_bytes: Its memory, where it is another.

    Raises:
        ConfigError: If the table has no such device.
    """
    known = devices()
    if name not in known:
        raise ConfigError(f"no device '{name}' is known here{near(name, known)}; known: {', '.join(known)}")
    found = known[name]
    return found if memory_bytes is None else replace(found, memory_bytes=memory_bytes)


def parse_bytes(text: str) -> float:
    """Read an amount of memory, such as `80GB`; a GPU's gigabytes are GiB, as its makers count them.

    Raises:
        ConfigError: If it is none.
    """
    found = _SIZE.fullmatch(text)
    if not found or float(found[1]) <= 0:
        raise ConfigError(f"'{text}' is no amount of memory; expected a number of gigabytes such as 80GB or 24")
    return float(found[1]) * (2**20 if (found[2] or "G").upper().startswith("M") else GIB)


def this_machine(num_threads: int) -> Machine:
    """The GPUs of this machine, or its CPU where there is none. CUDA is not touched.

    Args:
        num_threads: Cores that rollouts and updates use.
    """
    gpus = _gpu_memories()
    if gpus:
        # Sizes are what counts; bandwidth and operations are those of the nearest in the table.
        sizes = min(gpus)
        nearest = min(
            (known for known in devices().values() if not known.is_cpu), key=lambda d: abs(d.memory_bytes - sizes)
        )
        return Machine(replace(nearest, memory_bytes=sizes), len(gpus))
    return Machine(replace(devices()["cpu"], memory_bytes=host_memory()), num_threads)


def host_memory() -> float:
    """Memory of this machine, or what its container may use of it."""
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
        return [float(line) * 2**20 for line in answer.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
