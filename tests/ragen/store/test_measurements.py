"""What was measured of stored turns is found by its inputs."""

from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.ragen.store.measurements import measurements
from starpo.schemas.manifest import Stage
from tests.examples import example

RECORDED = {3: {"rollout": {"turns": "a" * 32}, "reward": {"rewards": "b" * 32}}, 4: {"rollout": {"turns": "c" * 32}}}


def put(store: Store, kind: str, inputs: dict[str, str], **settings: int) -> str:
    stage = Stage(name=kind, version=1)
    key = stage_key(stage, settings, inputs, 0)
    store.put_table(kind, example(kind), Facts(key=key, stage=stage, settings=settings, inputs=inputs, seed=0))
    return key


def test_measurements_belong_to_their_turns(tmp_path) -> None:
    store = Store(str(tmp_path))
    assert measurements(store, RECORDED) == {}
    first = put(store, "credits", {"turns": "a" * 32})
    assert measurements(store, RECORDED) == {3: {"credit": {"credits": first}}}
    refined = put(store, "credits", {"turns": "a" * 32, "credits": first})
    other = put(store, "credits", {"turns": "a" * 32}, groups=1)
    put(store, "credits", {"turns": "d" * 32})
    put(store, "credits", {"turns": "a" * 32, "turns:1": "c" * 32})
    expected = {"credit": {"credits": min(refined, other)}, "credit:1": {"credits": max(refined, other)}}
    assert measurements(store, RECORDED) == {3: expected}


def test_estimates_belong_to_their_iteration(tmp_path) -> None:
    """The next iteration may use the same turns."""
    store = Store(str(tmp_path))
    recorded = {3: RECORDED[3], 5: RECORDED[3]}
    key = put(store, "credit_estimates", {"turns": "a" * 32}, iteration=5)
    assert measurements(store, recorded) == {5: {"credit_estimates": {"credit_estimates": key}}}


def test_unreadable_manifest_is_left_out(tmp_path) -> None:
    store = Store(str(tmp_path))
    put(store, "credits", {"turns": "a" * 32})
    assert measurements(store, RECORDED, lambda kind, key: None) == {}
