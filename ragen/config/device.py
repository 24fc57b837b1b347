"""`Device`: what torch computes on, as a value, and whether it repeats its bytes there.

    Device.here() -> engines, learners, fine-tuning        Device.here().facts() -> manifest -> Device.of, to compare

On a GPU several threads may add to one number, in any order, and a library may choose its kernel by the memory or the
time that it finds. `Device.here` removes the second kind of chance when it first finds a GPU, and `repeating` the first
one while gradients are computed. Sampling is outside of it: its kernels repeat as they are, and torch's deterministic
cumulative sum takes the square of the vocabulary in memory.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import CDLL, byref, c_int
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import LearnerError

_log = logging.getLogger(__name__)

_DRIVER = Path("/proc/driver/nvidia/version")
_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
_FIXED_WORKSPACE = ":4096:8"  # buffers of 4 MiB, 8 of them; cuBLAS reads it when CUDA starts
_VERSIONS = ("driver", "cuda", "cublas")


@dataclass(frozen=True)
class Device:
    """What torch computes on. Equal devices with the same torch give the same bytes, if they are repeatable.

    Attributes:
        kind: torch's name of its kind.
        name: Name of the GPU, such as 'NVIDIA H200'; empty for the CPU.
        driver: Version of its driver, such as '580.95.05'; empty for the CPU, or if unknown. So are the next two.
        cuda: Version of CUDA that torch was built for.
        cublas: Version of cuBLAS.
        num_gpus: Number of GPUs that this process sees.
        is_repeatable: Whether the same work gives the same bytes on an equal device.
    """

    kind: Literal["cpu", "cuda"] = "cpu"
    name: str = ""
    driver: str = ""
    cuda: str = ""
    cublas: str = ""
    num_gpus: int = field(default=0, compare=False)
    is_repeatable: bool = field(default=True, compare=False)

    @classmethod
    def here(cls) -> "Device":
        """Return the device of this process: the first GPU if there is one, otherwise the CPU.

        A GPU is made repeatable, for this process and those that it starts, unless STARPO_SHOULD_REPEAT is off.
        """
        return _device(Runtime.current().should_repeat)

    @classmethod
    def has_gpu(cls) -> bool:
        """Whether `here` is a GPU; torch is imported only where CUDA's driver is installed."""
        return _has_driver() and cls.here().is_gpu

    @classmethod
    def of(cls, provenance: Mapping[str, Any]) -> "Device":
        """Return the device that a manifest's provenance names; the CPU if it names no GPU."""
        hardware = provenance.get("hardware")
        if not isinstance(hardware, dict) or not hardware.get("gpu"):
            return cls()
        driver, cuda, cublas = (str(hardware.get(name) or "") for name in _VERSIONS)
        return cls("cuda", str(hardware["gpu"]), driver, cuda, cublas)

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU."""
        return self.kind != "cpu"

    def facts(self) -> dict[str, Any]:
        """Return what a manifest records of it besides torch's version, as JSON; empty for the CPU."""
        if not self.is_gpu:
            return {}
        return {"gpu": self.name, "gpus": self.num_gpus} | {name: getattr(self, name) for name in _VERSIONS}

    def is_unlike(self, other: "Device") -> bool:
        """Whether the two compute with other kernels, whatever the versions of their software."""
        return (self.kind, self.name) != (other.kind, other.name)

    def __str__(self) -> str:
        """Return a text such as `an NVIDIA H200 (driver 580.95.05, CUDA 13.0, cuBLAS 13.1.0)`, or `a CPU`."""
        if not self.is_gpu:
            return "a CPU"
        driver, cuda, cublas = (version or "unknown" for version in (self.driver, self.cuda, self.cublas))
        return f"an {self.name} (driver {driver}, CUDA {cuda}, cuBLAS {cublas})"

    @contextmanager
    def repeating(self) -> Iterator[None]:
        """Use deterministic kernels alone inside the context, in all threads; no effect on the CPU, which has no
        others, or on a device that is not repeatable.

        Raises:
            LearnerError: If there is none for an operation of the model.
        """
        if not (self.is_gpu and self.is_repeatable):
            yield
            return
        import torch

        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            yield
        except RuntimeError as error:
            if "does not have a deterministic implementation" not in str(error):
                raise
            raise LearnerError(
                f"the model computes with an operation for which torch has no deterministic kernel on {self.name}: "
                f"{str(error).splitlines()[0]}\nSet STARPO_SHOULD_REPEAT=0 to train it all the same; its updates then "
                "need not repeat, and the manifests say so"
            ) from error
        finally:
            torch.use_deterministic_algorithms(before)


@cache
def _device(should_repeat: bool) -> Device:
    import torch

    if not torch.cuda.is_available():
        return Device()
    if should_repeat:
        _fix_kernels()
    else:
        _log.warning(
            "STARPO_SHOULD_REPEAT is off: what this GPU computes is stored as not repeatable, `starpo verify` cannot "
            "show it, and a checkpoint that is dropped cannot be derived"
        )
    cuda = str(torch.version.cuda or "")
    return Device(
        kind="cuda",
        name=torch.cuda.get_device_name(0),
        driver=_driver_version(),
        cuda=cuda,
        cublas=_cublas_version(cuda),
        num_gpus=torch.cuda.device_count(),
        is_repeatable=should_repeat,
    )


def _fix_kernels() -> None:
    """Leave no choice of kernels to time, free memory or the environment; must precede the first use of CUDA."""
    import torch

    os.environ[_WORKSPACE] = _FIXED_WORKSPACE
    torch.set_float32_matmul_precision("highest")  # no TF32
    torch.backends.cudnn.benchmark = False
    torch.cuda.tunable.enable(False)
    # Deterministic kernels would otherwise fill new tensors with NaN, which is for finding reads of unwritten memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _has_driver() -> bool:
    try:
        CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def _driver_version() -> str:
    try:
        version = re.search(r"\b\d+\.\d+(\.\d+)?\b", _DRIVER.read_text())
    except OSError:
        return ""
    return version[0] if version else ""


def _cublas_version(cuda: str) -> str:
    """Ask the cuBLAS that torch has loaded."""
    try:
        library = CDLL(f"libcublas.so.{cuda.partition('.')[0]}")
    except OSError:
        return ""  # part of torch itself, or not CUDA's
    numbers = []
    for part in range(3):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL
        number = c_int()
        library.cublasGetProperty(part, byref(number))
        numbers.append(str(number.value))
    return ".".join(numbers)
