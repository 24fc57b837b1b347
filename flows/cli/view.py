"""`starpo view`: the runs of a store in a browser, while they train and afterwards."""

import os
import secrets
import socket
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, urlencode

import typer

from starpo.flows.cli.options import JsonOption, StoreOption, open_store
from starpo.flows.console.documents.training import ServedPage
from starpo.flows.console.terminal import Console, print_json_line, say
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.outputs import whole_file

_PORT = 4280
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def view(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Run to open, or several to compare. Default: the list of all runs.")
    ] = None,
    store: StoreOption = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help=f"Port; 0: any free one. Default: {_PORT}, or a free one.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Another than loopback lets other machines in, with a token.")
    ] = "127.0.0.1",
    address_file: Annotated[Path | None, typer.Option(hidden=True, help="Receives address and store.")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Look at runs in a browser, live while they train: curves, groups, every trajectory. Nothing is written."""
    # Arrow's own allocator keeps what each thread has freed: twice the memory. It is chosen when pyarrow is imported.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    import uvicorn

    from starpo.ragen.evidence.view.app import application
    from starpo.ragen.evidence.view.comparing import chosen_names
    from starpo.ragen.evidence.view.guard import Guard
    from starpo.ragen.evidence.view.reading import StoreReader

    opened = open_store(store)
    if store is not None:
        opened.expect()
    names = chosen_names([("run", run) for run in runs]) if runs else []
    for run in names:
        opened.runs.get(run)
    listener = _listen(host, port)
    number = listener.getsockname()[1]
    token = "" if host in _LOOPBACK else secrets.token_urlsafe(16)
    address = f"http://{f'[{host}]' if ':' in host else host}:{number}/"
    if address_file is not None:
        with whole_file(address_file) as unfinished:
            unfinished.write_text(f"{address}\n{opened.address}\n", encoding="utf-8")
    address += _page(names, token)
    if as_json:
        print_json_line(ServedPage(store=opened.url, address=address))
    else:
        say(Console(), f"{opened.url}: {address}\nCtrl-C ends it; runs go on.")
    if browser:
        webbrowser.open(address)
    config = uvicorn.Config(
        Guard(application(StoreReader(opened)), number, token),
        log_config=None, access_log=False, ws="none", lifespan="off", server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=[listener])


def _page(runs: Sequence[str], token: str) -> str:
    """Return path and query of the page to open: all runs, one, or several beside each other."""
    path = "compare" if len(runs) > 1 else "".join(f"run/{quote(run, safe='')}" for run in runs)
    query = [("run", run) for run in runs if len(runs) > 1] + [("token", token)] * bool(token)
    return f"{path}?{urlencode(query)}" if query else path


def _listen(host: str, port: int | None) -> socket.socket:
    """Take the port that was asked for; without one, the usual port, or a free one if that is in use.

    Raises:
        ConfigError: If it cannot be taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (port,) if port is not None else (_PORT, 0):
        try:
            return socket.create_server((host, wanted), family=family)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
    raise ConfigError(f"{host}:{wanted} cannot be listened on ({reason}); choose another --port or --host")
