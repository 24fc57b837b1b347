import pytest

from starpo.flows.deployments import deployments
from starpo.flows.presets import preset
from starpo.flows.replay_summary import print_comparison
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.words import facts
from starpo.ragen.learning.metrics.table import metrics_table
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage

PAIR = {"replay/base/entropy": 1.0, "replay/branch/entropy": 1.5}


def test_replaying_is_a_deployment_whose_form_says_what_it_takes() -> None:
    (made,) = [made for made in deployments() if made.flow.name == "replay"]
    assert made.name == "updates"
    schema = made.to_runner()._parameter_openapi_schema.model_dump()
    assert schema["required"] == ["base"]
    assert "rollouts are replayed" in schema["properties"]["base"]["description"]


def put_replay(store: Store, compared: dict[str, float]) -> None:
    store.runs.create(
        "again",
        flow="replay",
        preset="smoke",
        config=preset("smoke").model_dump(mode="json"),
        parameters={"base": "mine", "start": 3, "stop": 4, "changed": {}},
    )
    made = Facts(key="0" * 32, stage=Stage(name="compare", version=1), settings={}, inputs={}, seed=0)
    store.put_table("metrics", metrics_table(3, "compare", compared), made)
    store.runs.record_stage("again", 3, "compare", {"metrics": made.key})


@pytest.mark.parametrize("has_update", [True, False])
def test_the_legend_is_of_the_columns_that_the_table_has(
    store: Store, has_update: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    put_replay(store, {"replay/groups_kept_by_both": 2.0, **(PAIR if has_update else {})})
    print_comparison(store, "again", as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "below it the branch's" in line] == (
        ["entropy: the base's, below it the branch's"] if has_update else []
    )
    assert "mine, from checkpoint 3 to 4" in lines


def test_a_report_says_what_was_replayed(store: Store) -> None:
    put_replay(store, PAIR)
    assert facts(gather(store, "again"))[0] == ("Replay of", "mine, from checkpoint 3 to 4")
