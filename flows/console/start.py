"""A run's start by a command or a script: check the settings, train here or on the local server.

settings -> this process: `tasks.loop.run`, or a server: deployment -> flow `flows.starpo` -> `tasks.loop.run`
"""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from starpo.flows.console.follow import RunFailedError, follow_run
from starpo.flows.console.stores import open_store
from starpo.flows.console.terminal import Console, say
from starpo.flows.outcome import Outcome
from starpo.flows.presets import PRESETS
from starpo.flows.presets import preset as load_preset
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.readiness import check_ready
from starpo.ragen.runs.execution import InProcess
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Store
from starpo.ragen.store.names import checked_name
from starpo.tasks.loop.memory_check import check_memory
from starpo.tasks.loop.reuse import reused
from starpo.tasks.loop.run import carry_out_run
from starpo.tasks.loop.run_code import code_of, default_run_name

if TYPE_CHECKING:
    from starpo.tasks.loop.fork import Fork


def train_settings(
    preset: str,
    overrides: Mapping[str, Any],
    console: Console,
    *,
    seed: int | None = None,
    iterations: int | None = None,
    store: str | None = None,
    run: str | None = None,
    is_local: bool = False,
) -> tuple[Store, str]:
    """Train with a preset or a file of settings: begin a run, or continue the one of the same name, to its end.

    Args:
        preset: A preset, or the path of a TOML file of settings.
        overrides: Dotted path -> value.
        console: Console for the progress.
        seed: Overrides `seed`.
        iterations: Overrides `iterations`.
        store: Address of the store. None for the configured one.
        run: Name of the run. None to derive it from preset, seed, settings and code.
        is_local: Train in this process. Otherwise on the local Prefect server, which is started if necessary.

    Returns:
        The store, and the run's name; after a rollback, the name of the fork that it ended as.

    Raises:
        StarPOError: If the settings are invalid, the name belongs to another run, the server cannot be started, or the
            run fails.
    """
    short = {key: value for key, value in {"seed": seed, "iterations": iterations}.items() if value is not None}
    config = load_preset(preset, {**overrides, **short})  # invalid settings fail here, before anything is started
    if config.policy.type == "pretrained":  # for the embedded policy, the flow checks: it needs the tokenizer first
        check_memory(config)
    opened = open_store(store)
    check_ready(config, preset, store=opened)
    if config.policy.type == "pretrained":
        _warn(config, console)
    is_file = preset not in PRESETS.names()
    settings = Path(preset).stem if is_file else preset  # label of the settings
    run_name = run or default_run_name(settings, config)
    checked_name(run_name, "run")
    if run is not None:  # a user-given name must not belong to a run with other settings or code
        opened.runs.create(
            run, flow="starpo", preset=settings, config=config.model_dump(mode="json"), code=code_of(config)
        )
    say(console, str(reused(opened, run_name, config)))
    if is_local:
        return opened, train_here(opened, run_name, settings, config, console)
    from starpo.flows.console.deployment import written_settings  # Prefect, as in `_on_server`

    given = {"config": load_preset(preset).model_dump(mode="json"), "preset": settings} if is_file else {}
    optional = {"overrides": dict(overrides) or None, "store": store, "run": run}
    parameters = {**given, **short, **{key: value for key, value in optional.items() if value is not None}}
    written = {"config": written_settings(preset)}
    deployment = f"starpo/{'custom' if is_file else preset}"
    return opened, _on_server(deployment, parameters, opened, run_name, console, written)


def _warn(config: StarPOConfig, console: Console) -> None:
    """Name the settings that are out of place with a pretrained model."""
    from starpo.ragen.advice import advise
    from starpo.ragen.context_fit import context_fits
    from starpo.ragen.sizing.architecture import known_size

    for advice in advise(config, context_fits(config), known_size(config)):
        say(console, f"warning: {advice}")


def train_fork(
    fork: "Fork",
    console: Console,
    *,
    store: str | None = None,
    run: str | None = None,
    is_local: bool = False,
    written: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Store, str]:
    """Continue training as a fork (`tasks.loop.fork`). See `train_settings` for the other arguments and errors.

    Args:
        fork: The fork.
        console: Console for the progress.
        store: Address of the store.
        run: Name of the fork. None for its own.
        is_local: Train in this process.
        written: As for `follow_deployment`.
    """
    settings = fork.config.model_dump(mode="json")
    opened, name, preset = open_store(store), run or fork.name, fork.base.preset or "custom"
    check_ready(fork.config, f"a fork of '{fork.base.name}'", store=opened)
    if run is not None:  # a user-given name must not belong to another run
        opened.runs.create(run, flow="starpo", preset=preset, config=settings, code=code_of(fork.config))
    say(console, str(reused(opened, name, fork.config)))
    return opened, train_config(
        opened, name, preset, fork.config, console, is_local=is_local, address=store, written=written
    )


def train_config(
    store: Store,
    run: str,
    preset: str,
    config: StarPOConfig,
    console: Console,
    *,
    is_local: bool,
    address: str | None = None,
    written: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Train with complete settings under a name. See `train_settings` for errors.

    Args:
        store: The store.
        run: The run's name.
        preset: Label of the settings.
        config: The settings.
        console: Console for the progress.
        is_local: Train in this process.
        address: Address of the store. None for the configured one.
        written: As for `follow_deployment`.

    Returns:
        The run's name; after a rollback, the name of the fork that it ended as.
    """
    if is_local:
        return train_here(store, run, preset, config, console)
    parameters = {"config": config.model_dump(mode="json"), "preset": preset, "run": run}
    parameters |= {} if address is None else {"store": address}
    return _on_server("starpo/custom", parameters, store, run, console, written)


def _on_server(*arguments: Any) -> str:
    from starpo.flows.console.deployment import follow_deployment  # Prefect, which a local run does without

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return follow_deployment(*arguments)
    with ThreadPoolExecutor(1) as pool:  # in an event loop, such as a notebook's, Prefect's calls return coroutines
        return pool.submit(follow_deployment, *arguments).result()


def train_here(store: Store, run: str, preset: str, config: StarPOConfig, console: Console) -> str:
    """Begin a run, or continue the one of this name, and train to its end in this thread.

    Args:
        store: The store.
        run: The run's name.
        preset: Label of the settings.
        config: The settings.
        console: Console for the progress.

    Returns:
        The run's name; after a rollback, the name of the fork that it ended as.

    Raises:
        StarPOError: If it cannot start, or fails. Its state in the store names the error.
        KeyboardInterrupt: On Ctrl-C; its state is then 'cancelled', and the same settings continue it.
    """
    check_memory(config)
    check_ready(config, preset, should_download=True, store=store)
    with _progress(store, run, console), ModelPlacement() as placement:
        return carry_out_run(store.address, run, preset, config, InProcess(placement))


@contextmanager
def _progress(store: Store, run: str, console: Console) -> Iterator[None]:
    """Show the progress of a run while the block works on it. The block's error is not repeated."""
    over, outcome = Event(), Outcome("completed", "")

    def follow() -> None:
        try:
            follow_run(store, run, console, lambda: outcome if over.is_set() else None)
        except RunFailedError:
            pass
        except StarPOError as error:
            say(console, f"the progress of run {run} is not shown any more: {error}")

    thread = Thread(target=follow, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
