"""Specifications of devices, and the devices of this machine.

name in the table, or this machine --> Machine(device, number)
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
MIB = 2**20
_TABLE = Path(__file__).parent / "data" / "devices.json"
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(GB|GiB|G|MB|MiB|M)?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Device:
    """A type of GPU, or a CPU core.

    Attributes:
        name: Name in the table.
        memory_bytes: Memory of one GPU; for a CPU, of the machine.
        bandwidth_bytes_s: Memory bandwidth in bytes per second.
        flops: Peak operations per second, by dtype; for a CPU, of one core.
        training_share: Assumed share of the peak operations that training reaches.
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
        """Whether it is a CPU core."""
        return self.name == "cpu"


@dataclass(frozen=True)
class Machine:
    """Devices to run on.

    Attributes:
        device: Type of device.
        number: Number of GPUs; for a CPU, number of cores used.
    """

    device: Device
    number: int


@cache
def devices() -> dict[str, Device]:
    """Return name -> device, from vendor data sheets; the shares are assumptions, unused if rates are given."""
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
    """Return a device of the table.

    Args:
        name: Name of the device.
        memory_bytes: Overrides the memory in the table.

    Raises:
        ConfigError: If the table has no such device.
    """
    known = devices()
    if name not in known:
        raise ConfigError(f"no device '{name}' is known{near(name, known)}; expected one of: {', '.join(known)}")
    found = known[name]
    return found if memory_bytes is None else replace(found, memory_bytes=memory_bytes)


def parse_bytes(text: str) -> float:
    """Parse an amount of memory such as `80GB`; GB means GiB, as GPU vendors count.

    Raises:
        ConfigError: If the text is not an amount of memory.
    """
    found = _SIZE.fullmatch(text)
    if not found or float(found[1]) <= 0:
        raise ConfigError(f"'{text}' is not an amount of memory; expected a number of gigabytes such as 80GB or 24")
    return float(found[1]) * (2**20 if (found[2] or "G").upper().startswith("M") else GIB)


def this_machine(num_threads: int) -> Machine:
    """Return the GPUs of this machine, or its CPU if it has none, without initialising CUDA.

    Args:
        num_threads: Number of cores that rollouts and updates use.
    """
    gpus = _gpu_memories()
    if gpus:
        # Memory matters most; bandwidth and operations are those of the device in the table with the nearest memory.
        sizes = min(gpus)
        nearest = min(
            (known for known in devices().values() if not known.is_cpu), key=lambda d: abs(d.memory_bytes - sizes)
        )
        return Machine(replace(nearest, memory_bytes=sizes), len(gpus))
    return Machine(replace(devices()["cpu"], memory_bytes=host_memory()), num_threads)


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
        return [float(line) * 2**20 for line in answer.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
