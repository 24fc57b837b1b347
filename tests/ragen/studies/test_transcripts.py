"""Responses at the first and the last evaluation of a run, matched by prompt."""

import pyarrow as pa
import pytest

from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.ragen.studies.transcripts import read_transcripts
from starpo.schemas.manifest import Stage
from tests.examples import example

STAGE = Stage(name="evaluate", version=1)


@pytest.fixture
def store(tmp_path):
    store = Store(str(tmp_path))
    store.runs.create("mine", flow="starpo", preset=None, config={})
    return store


def put(store: Store, iteration: int, **columns) -> None:
    """Store an evaluation of two episodes, on prompts 7 and 8."""
    table = example("episodes")
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    settings = {"iteration": iteration}
    key = stage_key(STAGE, settings, {}, 0)
    store.put_table("episodes", table, Facts(key=key, stage=STAGE, settings=settings, inputs={}, seed=0))
    store.runs.record_stage("mine", iteration, "evaluate:sokoban", {"episodes": key, "metrics": key})


def responses(*first: str) -> list[list[str]]:
    """First responses of two episodes, each with as many turns as the example has."""
    return [[text, *turns[1:]] for text, turns in zip(first, example("episodes")["responses"].to_pylist(), strict=True)]


def test_first_and_last_evaluation_are_matched_by_prompt(store) -> None:
    put(store, 0, responses=responses("a", "b"), success=[True, False])
    put(store, 4, responses=responses("not", "shown"))
    put(store, 8, responses=responses("c", "d"), success=[False, True])
    first, second = read_transcripts(store, "mine", "sokoban")
    assert (first.before.text, first.after.text) == ("a", "c")
    assert (first.before.success, first.after.success) == (True, False)
    assert (second.before.iteration, second.after.iteration) == (0, 8)
    assert first.observation == example("episodes")["observations"].to_pylist()[0][0]
    assert len(read_transcripts(store, "mine", "sokoban", number=1)) == 1


def test_a_prompt_that_met_an_error_is_left_out(store) -> None:
    put(store, 0, responses=responses("a", "b"))
    put(store, 8, responses=responses("c", "d"), status=["env_error", "format_error"])
    (only,) = read_transcripts(store, "mine", "sokoban")
    assert (only.before.text, only.after.text) == ("b", "d")
