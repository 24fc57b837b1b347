"""Capacity checks of a Ray cluster, and errors when there is none. No Ray is started here."""

import socket
import time
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from starpo.ragen.agents.rollout.pools.ray_cluster import check_room, connect, num_places
from starpo.ragen.config.ray_runtime import RayRuntime
from starpo.ragen.core.errors import ConfigError, EngineError


def node(is_alive=True, **resources):
    return {"Alive": is_alive, "Resources": {"memory": 1e9, **resources}}


@pytest.mark.parametrize(
    ("has", "demand", "places"),
    [
        ({"CPU": 2.0}, {"CPU": 0.5}, 4),
        ({"CPU": 2.0}, {"CPU": 0.3}, 6),  # 6.67
        ({"CPU": 0.3}, {"CPU": 0.1}, 3),  # 0.3 / 0.1 is below 3 in floating point
        ({"CPU": 16.0, "GPU": 2.0}, {"CPU": 1, "GPU": 0.5}, 4),
        ({"CPU": 16.0, "GPU": 3.0}, {"CPU": 1, "GPU": 2}, 1),
        ({"CPU": 16.0}, {"CPU": 1, "GPU": 1}, 0),
        ({"CPU": 16.0, "rollout": 1.0}, {"rollout": 1}, 1),
        ({"CPU": 16.0}, {}, float("inf")),
    ],
)
def test_places_of_a_node(has, demand, places):
    assert num_places(has, demand) == places


@given(st.lists(st.floats(0.1, 8), min_size=1, max_size=4), st.floats(0.1, 4), st.integers(1, 40))
def test_room_sums_whole_actors_per_node(cpus, demand, count):
    """Two nodes together have no room for an actor that fits on neither."""
    nodes = [node(CPU=value) for value in cpus]
    room = sum(num_places({"CPU": value}, {"CPU": demand}) for value in cpus)
    if room >= count:
        check_room(nodes, {"CPU": demand}, count, "actors")
        return
    with pytest.raises(ConfigError, match=f"room for {room:.0f} of {count} actors"):
        check_room(nodes, {"CPU": demand}, count, "actors")


def test_message_names_all_missing_resources():
    nodes = [node(CPU=4.0, GPU=1.0), node(CPU=8.0), node(is_alive=False, CPU=64.0, GPU=8.0)]
    with pytest.raises(ConfigError) as caught:
        check_room(nodes, RayRuntime(actor_gpus=2).actor, 2, "rollout actors (STARPO_RAY_ACTORS, ...)")
    assert str(caught.value) == (
        "the Ray cluster has room for 0 of 2 rollout actors (STARPO_RAY_ACTORS, ...), each of which asks for CPU 0.5, "
        "GPU 2 on one node. Its nodes have: CPU 4, GPU 1; CPU 8, GPU 0. Ask for less or fewer, or add nodes; "
        "STARPO_RAY_AUTOSCALES=true waits for nodes that are added on demand"
    )


def test_settings_come_from_the_environment(monkeypatch):
    variables = {"ACTORS": "3", "ACTOR_CPUS": "0", "ACTOR_GPUS": "0.25", "ACTOR_RESOURCES": '{"rollout": 1}'}
    for name, value in variables.items():
        monkeypatch.setenv(f"STARPO_RAY_{name}", value)
    settings = RayRuntime()
    assert settings.actors == 3
    assert settings.actor == {"GPU": 0.25, "rollout": 1}
    assert settings.cell == {"CPU": 1}


@pytest.mark.parametrize("who", ["ACTOR", "CELL"])
@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ('{"rollout": -1}', "rollout = -1; expected an amount of at least 0"),
        ('{"rollout": NaN}', "rollout = nan; expected"),
        ('{"rollout": 1, "CPU": 4}', "'CPU' is Ray's own.* STARPO_RAY_ACTOR_CPUS, STARPO_RAY_CELL_CPUS"),
        ('{"GPU": 1}', "'GPU' is Ray's own.* STARPO_RAY_ACTOR_GPUS, STARPO_RAY_CELL_GPUS"),
        ('{"memory": 1e9}', "'memory' is Ray's own"),
    ],
)
def test_non_custom_resources_are_refused(monkeypatch, who, resources, reason):
    monkeypatch.setenv(f"STARPO_RAY_{who}_RESOURCES", resources)
    with pytest.raises(ValidationError, match=reason):
        RayRuntime()


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (pip install 'starpo[ray]')")
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_wrong_address_reported_at_once(monkeypatch, scheme):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    started = time.monotonic()
    with pytest.raises(EngineError, match=rf"no Ray cluster answers at RAY_ADDRESS = {address} .*unset it"):
        connect(num_cpus=1)
    assert time.monotonic() - started < 20
