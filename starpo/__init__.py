"""StarPO as a pipeline, under the one name that an installation claims.

flows, tasks, ragen, schemas   the folders at the repository's root, by links; a wheel holds them as they are

For scripts and notebooks (docs/python.md): `train`, `evaluate`, `play`, `open_run`, `runs`, `sql`, `Run`, and
`StarPOError`, the base of every error that a user can cause. Each is imported when it is first used.
"""

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if find_spec("fcntl") is None or find_spec("resource") is None:
    # the command's user sees the sentence alone, without the traceback of an import
    raise (SystemExit if Path(sys.argv[0]).stem in ("starpo", "ragen") else ImportError)(
        "StarPO needs Linux or macOS (it locks files and limits processes as these do): on Windows, install and start "
        "it in WSL, the Windows Subsystem for Linux (`wsl --install`)"
    )
if PathFinder.find_spec("starpo.schemas", __path__) is None:
    raise ImportError(
        f"{__path__[0]} holds no folders flows, ragen, schemas and tasks: in a checkout they are symbolic links to the "
        "folders beside it, which some zip archives and Git on Windows leave out. Clone with 'git clone -c "
        "core.symlinks=true URL' (on Windows, with developer mode on), or put copies of the four folders there"
    )

for _old in [name for name in os.environ if name.startswith("RAGEN_")]:  # names of variables before 0.1.0
    _new = _old.replace("RAGEN_", "STARPO_", 1)
    if _new not in os.environ:
        os.environ[_new] = os.environ[_old]
        sys.stderr.write(f"note: {_old} is read as {_new}, which is its name now\n")

if TYPE_CHECKING:
    from starpo.flows.api.evaluation import evaluate
    from starpo.flows.api.opened_run import Run, open_run, runs, sql
    from starpo.flows.api.scripting import play, train
    from starpo.ragen.core.errors import StarPOError

__all__ = ["Run", "StarPOError", "evaluate", "open_run", "play", "runs", "sql", "train"]

_PLACES = {
    "Run": "flows.api.opened_run",
    "open_run": "flows.api.opened_run",
    "runs": "flows.api.opened_run",
    "sql": "flows.api.opened_run",
    "evaluate": "flows.api.evaluation",
    "play": "flows.api.scripting",
    "train": "flows.api.scripting",
    "StarPOError": "ragen.core.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'starpo' has no attribute '{name}'; it has {', '.join(__all__)}")
    return getattr(import_module(f"starpo.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
