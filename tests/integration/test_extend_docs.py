"""docs/extend.md, followed to the letter but with smaller runs: the built wheel in its own environment, no checkout."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extend.md"
INSTALL = "pip install starpo\n" + "\n".join(re.findall(r"pip install pytest", PAGE.read_text()))
BLOCK = re.compile(r"^```(bash|python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\S+\.(?:py|toml))\n")
NEW = re.compile(r"^(starpo new environment stairs\b.*\n)", re.MULTILINE)
SMALL = {
    "iterations": 2, "demonstration_turns": 1000, "warm_start_steps": 40, "num_groups": 4, "group_size": 4,
    "num_prompts": 8, "every": 2,
}  # fmt: skip
"""Settings of stairs.toml in place of those that `starpo new` writes: the page's commands are what is shown."""
SHRINK = (
    "sed -i " + " ".join(f"-e 's/^{name} = .*/{name} = {value}/'" for name, value in SMALL.items()) + " stairs.toml\n"
)
VERIFIED = re.compile(r": verified$")
LOOK = """
import shlex, sys
from starpo.flows import cli
for command in sys.argv[1:]:
    sys.argv = ["starpo", *shlex.split(command)]
    try:
        cli.main()
    except SystemExit as end:
        assert not end.code, command
"""

pytestmark = pytest.mark.timeout(600)


@pytest.mark.thorough
def test_page_leads_to_trained_run(shell: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    commands = ["set -euo pipefail"]
    for language, text in BLOCK.findall(PAGE.read_text()):
        named = FILE.match(text)
        if language == "bash":
            commands.append(NEW.sub(lambda line: line[1] + SHRINK, text))
        elif named and "of your package" not in text.partition("\n")[0]:
            (work / named[1]).write_text(text)
    assert SHRINK in commands[1]
    done = subprocess.run(
        ["bash", "-c", "\n".join(commands)], cwd=work, env=shell, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "3 passed" in done.stdout
    assert "reward/component/my_rewards:brevity_mean" in done.stdout
    assert VERIFIED.search(done.stdout.rstrip()), done.stdout[-2000:]
    assert (work / "var" / "reports" / "mine.html").is_file()
    where = subprocess.run(
        ["python", "-c", "import starpo; print(starpo.__file__)"], cwd=work, env=shell, capture_output=True, text=True
    )
    assert where.stdout.startswith(str(Path(shell["PATH"].partition(":")[0]).parent)), "not the wheel"

    commands = ["runs", "show mine", "audit mine", "report mine -o again.html", "sql mine 'select 1 as one'"]
    looked = subprocess.run(
        ["python", "-c", LOOK, *commands], cwd=work, env=shell, capture_output=True, text=True, check=False
    )
    assert (looked.returncode, looked.stderr) == (0, ""), "where the code is not installed"
    refused = subprocess.run(["starpo", "verify", "mine"], cwd=work, env=shell, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "'stairs:Stairs' (named as module:attribute) cannot be loaded" in refused.stderr
    assert "Add its folder to PYTHONPATH" in refused.stderr
