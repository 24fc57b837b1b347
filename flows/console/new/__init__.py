"""`ragen new`: a working start for code of one's own, from the templates beside this file."""

import keyword
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from starpo.flows.console.terminal import write
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.core.visible import quoted

_NAME, _CLASS = "environment_name", "EnvironmentName"
"""What the templates call it."""
_TEMPLATES = {"environment.py.txt": "{}.py", "test.py.txt": "test_{}.py", "settings.toml.txt": "{}.toml"}


def write_environment(name: str, folder: Path) -> None:
    """Write an environment, its test and settings to train on it; nothing is overwritten.

    Args:
        name: Of its module, such as `stairs`.
        folder: Where the three files go.

    Raises:
        ConfigError: If the name is none, or is taken, or a file is there already.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise ConfigError(f"{quoted(name)} cannot be a module: use small letters, digits and _, such as stairs")
    taken = "a built-in environment" if name in ENVIRONMENTS else "a module that can be imported here"
    if name in ENVIRONMENTS or find_spec(name) is not None:
        raise ConfigError(f"'{name}' is {taken} already: choose another name")
    paths = {template: folder / pattern.format(name) for template, pattern in _TEMPLATES.items()}
    for path in paths.values():
        if path.exists():
            raise ConfigError(f"{path} exists already, and nothing was written: choose another name or folder")
    folder.mkdir(parents=True, exist_ok=True)
    for template, path in paths.items():
        text = files(__name__).joinpath(template).read_text(encoding="utf-8")
        path.write_text(text.replace(_NAME, name).replace(_CLASS, _class_name(name)), encoding="utf-8")
        write(f"wrote {path}")
    write(f"next: export PYTHONPATH={folder.resolve()}; pytest {paths['test.py.txt']}; ragen train {name}.toml")


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
