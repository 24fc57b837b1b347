"""The Ray cluster: connecting to one or starting one on this machine, and checking its capacity.

RAY_ADDRESS -> connect -> check_room -> actors, cells
"""

import os
import socket
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from threading import Lock
from typing import Any

from starpo.ragen.core.errors import ConfigError, EngineError, MissingPackageError, first_line

REACH_S = 10.0
"""Timeout in seconds of a connection to RAY_ADDRESS."""

_OBJECT_STORE_BYTES = 512 * 2**20  # of a local cluster; what does not fit spills to disk
_EVERYWHERE = {"RAY_USAGE_STATS_ENABLED": "0"}
_ALONE = {
    "RAY_AUTH_MODE": "token",  # Ray's default, which it warns about unless set explicitly
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # despite its name, on every system: listen on loopback
}
_connecting = Lock()


def prepare() -> None:
    """Set how Ray listens and authenticates, before anything imports it: it reads these variables only once."""
    if "ray" not in sys.modules:
        for name, value in {**_EVERYWHERE, **({} if os.environ.get("RAY_ADDRESS") else _ALONE)}.items():
            os.environ.setdefault(name, value)


def connect(num_cpus: int) -> Any:
    """Connect to the cluster at RAY_ADDRESS, or start one that ends with this process; return Ray's module.

    Args:
        num_cpus: CPUs of a cluster that is started here.

    Raises:
        MissingPackageError: If Ray is not installed.
        EngineError: If no cluster responds at RAY_ADDRESS, or if it rejects this process.
    """
    address = os.environ.get("RAY_ADDRESS") or None
    prepare()
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise MissingPackageError(
            "STARPO_POOL = ray needs Ray, which is not installed here: pip install 'starpo[ray]'"
        ) from error
    with _connecting:
        if not ray.is_initialized():
            if address is None:
                ray.init(
                    "local",
                    num_cpus=num_cpus,
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    logging_level="ERROR",
                )
            else:
                _check_answer(address)
                try:
                    ray.init(address, logging_level="ERROR")
                except Exception as error:
                    raise EngineError(
                        f"the Ray cluster at RAY_ADDRESS = {address} cannot be joined: {first_line(error)}. "
                        "It must run the same releases of Ray and Python as this process, and have its token"
                    ) from error
    return ray


def check_room(nodes: Iterable[Mapping[str, Any]], request: Mapping[str, float], count: int, what: str) -> None:
    """Check that a cluster could hold a number of actors or tasks at once, if it were otherwise empty.

    Args:
        nodes: As returned by `ray.nodes()`.
        request: Resource -> amount that each of them requests.
        count: Number of actors or tasks.
        what: Description of them for the message, with the settings that determine their resources.

    Raises:
        ConfigError: If the cluster is too small.
    """
    alive = [node for node in nodes if node["Alive"]]
    room = sum(num_places(node["Resources"], request) for node in alive)
    if room < count:
        have = "; ".join(_listed(node["Resources"], request) for node in alive) or "no node"
        raise ConfigError(
            f"the Ray cluster has room for {room:g} of {count} {what}, each of which asks for "
            f"{_listed(request, request)} on one node. Its nodes have: {have}. Ask for less or fewer, or add nodes; "
            "STARPO_RAY_AUTOSCALES=true waits for nodes that are added on demand"
        )


def num_places(resources: Mapping[str, float], request: Mapping[str, float]) -> float:
    """Return how many actors that request these resources fit on a node; infinity if they request none."""
    # Ray counts in ten-thousandths
    return min(
        (round(resources.get(name, 0) * 10_000) // round(amount * 10_000) for name, amount in request.items()),
        default=float("inf"),
    )


def _listed(resources: Mapping[str, float], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {resources.get(name, 0):g}" for name in names) or "nothing"


def _check_answer(address: str) -> None:
    """Check that RAY_ADDRESS accepts connections; Ray itself would retry for over ten minutes, ignoring interrupts."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:  # 'auto', 'local'
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, ValueError) as error:
        raise EngineError(
            f"no Ray cluster answers at RAY_ADDRESS = {address} ({error}). Start one (`ray start --head`), correct "
            "RAY_ADDRESS, or unset it to use this machine alone"
        ) from error
