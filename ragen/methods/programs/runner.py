"""Calls a function as a program: `python -P runner.py module:function`, with its argument as JSON on standard input.

What it returns becomes the last line of the output: a number, `(reward, success)`, or a dictionary. None: nothing. Run
as a file by `process`, with the standard library alone, in the program's own process.
"""

import json
import sys
from importlib import import_module


def main() -> None:
    """Import, call, and print."""
    module, _, name = sys.argv[1].partition(":")
    made = getattr(import_module(module), name)(json.load(sys.stdin))
    if isinstance(made, tuple) and len(made) == 2:
        made = {"reward": made[0], "success": made[1]}
    elif made is not None and not isinstance(made, dict):
        made = {"reward": made}
    if made is not None:
        sys.stdout.write(f"\n{json.dumps(made)}\n")


if __name__ == "__main__":
    main()
