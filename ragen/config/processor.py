"""`Processor`: the CPU of this machine, its name and the instructions that decide how torch rounds."""

import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_INFORMATION = Path("/proc/cpuinfo")
_FLAGS = ("flags", "Features")
"""Names of the line with all of its instructions, on x86 and on ARM."""
_OF_KERNELS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "sve", "bf16")
"""Those by which torch and oneDNN choose kernels of matrix products."""


@dataclass(frozen=True)
class Processor:
    """A CPU.

    Attributes:
        name: Its name, such as 'AMD EPYC 9654 96-Core Processor'; virtual machines give one name to several.
        instructions: Names, as Linux has them, of instructions that decide how torch rounds; empty if unknown.
    """

    name: str = ""
    instructions: tuple[str, ...] = ()

    @classmethod
    def here(cls) -> "Processor":
        """Return the processor of this machine."""
        return _processor()

    @classmethod
    def of(cls, information: str) -> "Processor":
        """Return the processor that a text describes as /proc/cpuinfo does, by its first core."""
        lines = (line.partition(":") for line in information.strip().partition("\n\n")[0].splitlines())
        values = {name.strip(): value.strip() for name, _, value in lines}
        flags = next((values[name].split() for name in _FLAGS if name in values), [])
        return cls(values.get("model name", ""), tuple(name for name in _OF_KERNELS if name in flags))

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether it has instructions for matrix products in bfloat16 that are known to make torch faster: AMX or
        AVX512-BF16."""
        return "amx_bf16" in self.instructions or "avx512_bf16" in self.instructions

    def facts(self) -> dict[str, str]:
        """Return what a manifest records of it, as JSON."""
        return {"cpu": self.name, "instructions": " ".join(self.instructions)}


@cache
def _processor() -> Processor:
    processor = Processor.of(_INFORMATION.read_text(errors="replace")) if _INFORMATION.exists() else Processor()
    return processor if processor.name else Processor(platform.processor(), processor.instructions)
