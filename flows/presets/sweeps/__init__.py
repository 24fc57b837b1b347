"""Evaluation sweeps: short TOML files of checkpoints, environments, temperatures and seeds. `names()` lists them."""

from pathlib import Path

from starpo.ragen.config.explanation import near
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.studies.sweep.sweep import Sweep, load_sweep

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Names of the sweeps that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def sweep(name_or_path: str) -> Sweep:
    """A sweep by name, or from a TOML file of the user's.

    Raises:
        ConfigError: If there is no such sweep or file, or it is wrong.
    """
    path = FOLDER / f"{name_or_path}.toml" if name_or_path in names() else Path(name_or_path)
    if not path.is_file():
        raise ConfigError(
            f"'{name_or_path}' is neither a sweep nor a TOML file{near(name_or_path, names())}; "
            f"sweeps: {', '.join(names())}"
        )
    return load_sweep(path)


def description(name: str) -> str:
    """What a sweep's file says about itself in its first line."""
    return (FOLDER / f"{name}.toml").read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()
