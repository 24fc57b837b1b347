"""The interpreter that has vLLM: this one, or that of a separate environment."""

import sys
from importlib.util import find_spec
from pathlib import Path

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import MissingPackageError

_MADE = Path(__file__).resolve().parents[3] / ".venv-vllm" / "bin" / "python"


def vllm_python() -> str:
    """Return the interpreter for rollouts with vLLM; without RAGEN_VLLM_PYTHON, `sys.executable` if it has vLLM.

    Raises:
        MissingPackageError: If there is none.
    """
    asked = Runtime.current().vllm_python
    if asked is None and find_spec("vllm") is not None:
        return sys.executable
    python = Path(asked) if asked is not None else _MADE
    if not python.is_file():
        where = "RAGEN_VLLM_PYTHON" if asked is not None else "the interpreter that `make vllm` makes"
        raise MissingPackageError(
            f"engine 'vllm' needs vLLM, and there is no '{python}' ({where}). Run `make vllm` in the repository, or "
            "set RAGEN_VLLM_PYTHON to the interpreter of an environment that has vLLM and this package (docs/vllm.md)"
        )
    return str(python)
