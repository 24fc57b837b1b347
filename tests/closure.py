"""Count the modules of this project that a command loads, over all its processes, and their lines.

`python -m tests.closure` counts what importing the default flow loads. With arguments it counts what Python loads with
these, as in `python -m tests.closure -m starpo.flows.cli train smoke --local`.
"""

import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

_FLOW = ["-c", "import starpo.flows.starpo"]
_NOTING = """
import sys

class Noting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "starpo":
            with open({file!r}, "a") as names:
                print(name, file=names)

sys.meta_path.insert(0, Noting)
"""
"""A `sitecustomize`, which every process runs first: it notes each module that is about to be imported."""


def loaded(arguments: list[str]) -> dict[str, int]:
    """Run Python with these arguments; return the modules of the project that it loaded -> lines of each.

    Raises:
        CalledProcessError: If the command fails.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "names"
        (Path(folder) / "sitecustomize.py").write_text(_NOTING.format(file=str(file)))
        path = os.pathsep.join([folder, *filter(None, sys.path)])
        env = {**os.environ, "PYTHONPATH": path}
        subprocess.run([sys.executable, *arguments], env=env, check=True, stdout=subprocess.DEVNULL)
        names = sorted(set(file.read_text().split()))
    specs = {name: find_spec(name) for name in names}
    return {
        name: len(Path(spec.origin).read_text(encoding="utf-8").splitlines())
        for name, spec in specs.items()
        if spec and spec.origin
    }


def main() -> None:
    """Print the sum, and that of every package with its modules."""
    lines = loaded(sys.argv[1:] or _FLOW)
    packages: Counter[str] = Counter()
    for name, count in lines.items():
        packages[".".join(name.split(".")[:4][: 3 if name.startswith("starpo.ragen.") else 2])] += count
    print(f"{len(lines)} modules, {sum(lines.values()):,} lines")
    for package, count in packages.most_common():
        print(f"{count:7,}  {package}")
    for name, count in sorted(lines.items(), key=lambda item: -item[1]):
        print(f"{count:7,}    {name}")


if __name__ == "__main__":
    main()
