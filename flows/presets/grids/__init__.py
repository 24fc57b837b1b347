"""Grids of ablations: short TOML files, each a base, axes and seeds. `names()` lists them."""

from pathlib import Path

from starpo.flows.presets import FOLDER as PRESETS
from starpo.flows.presets import names as preset_names
from starpo.flows.presets import preset
from starpo.ragen.config import StarPOConfig
from starpo.ragen.config.explanation import near
from starpo.ragen.config.load import recorded_config
from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.studies.ablation.grid import Grid, load_grid

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Names of the grids that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def grid_file(name_or_path: str) -> Path:
    """The file of a grid.

    Args:
        name_or_path: A name of `names()`, or the path of a TOML file.

    Raises:
        ConfigError: If it is neither.
    """
    path = FOLDER / f"{name_or_path}.toml" if name_or_path in names() else Path(name_or_path)
    if not path.is_file():
        raise ConfigError(
            f"'{name_or_path}' is neither a grid nor a TOML file{near(name_or_path, names())}; "
            f"grids: {', '.join(names())}"
        )
    return path


def grid(name_or_path: str) -> Grid:
    """A grid by name, or from a TOML file of the user's.

    Raises:
        ConfigError: If there is no such grid or file, or it is wrong.
    """
    return load_grid(grid_file(name_or_path))


def description(name: str) -> str:
    """What a grid's file says about itself in its first line."""
    return (FOLDER / f"{name}.toml").read_text(encoding="utf-8").partition("\n")[0].removeprefix("#").strip()


def base_settings(grid: Grid, store: Store, source: str, folder: Path | None = None) -> StarPOConfig:
    """The settings that a grid's cells start from.

    Args:
        grid: A checked grid.
        store: Where its run is, if it names one.
        source: Where the grid is from, for messages.
        folder: A TOML file that it names may be relative to this one.

    Raises:
        ConfigError: If there is no such preset, file or run, or its settings are not those of a run of StarPO.
    """
    if grid.preset is not None:
        known = [*preset_names(), *(path.stem for path in PRESETS.glob("*.toml"))]
        path = next((file for file in ((folder or Path()) / grid.preset, Path(grid.preset)) if file.is_file()), None)
        if path is None and grid.preset not in preset_names():
            raise ConfigError(
                f"{source}: preset = '{grid.preset}': neither a preset nor a TOML file{near(grid.preset, known)}; "
                f"presets: {', '.join(preset_names())}"
            )
        return preset(grid.preset if path is None else str(path))
    assert grid.run is not None
    try:
        run = store.runs.get(grid.run)
        return recorded_config(run.name, run.config, "Take a run of this release, or a preset")
    except (StoreError, ConfigError) as error:
        raise ConfigError(f"{source}: run = '{grid.run}': {error}") from error
