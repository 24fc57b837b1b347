"""Training and playing from a script or a notebook.

settings -> train -> Run;    settings -> play -> turns
"""

from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any

import pyarrow as pa

from starpo.flows.api.opened_run import NO_OVERRIDES, Run
from starpo.flows.console.stores import Address, open_store
from starpo.flows.presets import method as method_settings
from starpo.flows.presets import preset as load_preset


def train(
    preset: str | PathLike[str],
    overrides: Mapping[str, Any] = NO_OVERRIDES,
    *,
    method: str | None = None,
    store: Address | None = None,
    run: str | None = None,
    server: bool = False,
    quiet: bool = False,
) -> Run:
    """Train with a preset or a file of settings: begin a run, or continue the one of the same name, to its end.

    The same call after an interruption continues the run. Records, keys and digests are the same with and without a
    server.

    Args:
        preset: A preset (`starpo presets` lists them), or the path of a TOML file of settings.
        overrides: Dotted path -> value, such as {"seed": 1, "filter.keep": 0.25}.
        method: Settings of a whole method, applied before the overrides; `starpo presets --methods` lists them.
        store: Address of the store: a folder or an fsspec URL. None for the configured one (STARPO_STORE).
        run: Name of the run. None to derive it from preset, seed, settings and code.
        server: Train on the local Prefect server, which is started if necessary; False: in this process.
        quiet: Print nothing.

    Returns:
        The run; after a rollback, the fork that it ended as.

    Raises:
        StarPOError: If the settings are invalid, the name belongs to another run, or the run fails.
    """
    from starpo.flows.console.start import train_settings
    from starpo.flows.console.terminal import Console

    given = {**(method_settings(method) if method else {}), **overrides}
    settings, address = fspath(preset), None if store is None else fspath(store)
    return Run(*train_settings(settings, given, Console(quiet=quiet), store=address, run=run, is_local=not server))


def play(
    preset: str | PathLike[str], overrides: Mapping[str, Any] = NO_OVERRIDES, *, store: Address | None = None
) -> pa.Table:
    """Play the first rollout of a run with these settings, without training: the policy, too, is a setting.

    First checkpoint and rollout are stored, so a run with these settings uses them. `Run.play` plays others.

    Args:
        preset: As for `train`.
        overrides: As for `train`; `policy.name_or_path` names a pretrained policy, `rollout.num_groups` how much is
            played.
        store: As for `train`.

    Returns:
        Dataset `turns`.

    Raises:
        StarPOError: If the settings are invalid, or the policy or the environment cannot be loaded.
    """
    from starpo.ragen.readiness import check_ready
    from starpo.ragen.runs.placement import ModelPlacement
    from starpo.tasks.rollout import rollout
    from starpo.tasks.warm_start import warm_start

    config, opened = load_preset(fspath(preset), overrides), open_store(store)
    check_ready(config, fspath(preset), should_download=True)
    with ModelPlacement() as placement:
        checkpoint = warm_start(config).carry_out(opened, placement)["checkpoint"]
        keys = rollout(0, config.at(0), checkpoint).carry_out(opened, placement)
    return opened.read_table("turns", keys["turns"])
