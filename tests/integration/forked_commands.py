"""Commands of `starpo`, forked by a process that has imported everything, so that none takes seconds to import it.

    test --order--> this process --fork--> the command

Orders and answers are lines of JSON. An order has `arguments` of the command; `folder`, where it runs; `variables` of
its environment; and `output`, the file that its output is added to. Answers are its process id, then its exit status.
Not a test: `test_killed_programs.py` starts it as `python forked_commands.py`.
"""

import atexit
import importlib
import json
import os
import sys
import traceback

IMPORTS = (
    "starpo.flows.cli.train", "starpo.flows.console.start", "starpo.flows.console.conclusion",
    "starpo.ragen.evidence.report.page", "starpo.ragen.evidence.report.data", "starpo.ragen.evidence.report.boards",
    "starpo.ragen.learning.learners.torch_learner", "starpo.ragen.learning.learners.data.trajectories",
    "starpo.ragen.agents.rollout.torch.engine", "starpo.ragen.agents.rollout.shards", "starpo.tasks.loop.run",
    "transformers.models.qwen2.modeling_qwen2", "pyarrow.parquet", "polars", "duckdb",
)  # fmt: skip


def serve() -> None:
    """Import everything, then fork a command for every order, one at a time."""
    for name in IMPORTS:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os._exit(_carry_out(json.loads(line)))
        _say(child)
        _say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _carry_out(order: dict[str, object]) -> int:
    from starpo.flows import cli

    output = os.open(str(order["output"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for theirs, ours in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(theirs, ours)
    os.chdir(str(order["folder"]))
    os.environ.update(order["variables"])  # type: ignore[call-overload]
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["starpo", *order["arguments"]]  # type: ignore[misc]
    try:
        cli.main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return status


def _say(fact: int) -> None:
    sys.stdout.write(f"{fact}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve()
