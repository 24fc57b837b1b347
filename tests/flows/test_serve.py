from dataclasses import replace
from pathlib import Path

import yaml

from starpo.flows.deployments import Deployed, deployments, prefect_yaml
from starpo.flows.presets import names, preset

ROOT = Path(__file__).parents[2]


def by_name() -> dict[str, Deployed]:
    return {made.full_name: made for made in deployments()}


def test_work_pools_get_the_same_deployments() -> None:
    assert (ROOT / "prefect.yaml").read_text() == prefect_yaml(), "run `make deployments`, and review what changed"
    described = yaml.safe_load(prefect_yaml())["deployments"]
    assert len(described) == len(by_name())
    pools = {entry["entrypoint"].rpartition(".")[2]: entry["work_pool"]["name"] for entry in described}
    assert pools.pop("eval_sweep") == "gpu"
    assert set(pools.values()) == {"starpo"}


def test_every_preset_is_a_deployment() -> None:
    assert {f"starpo/{name}" for name in names()} <= set(by_name())


def test_a_deployment_carries_its_presets_settings() -> None:
    made = by_name()["starpo/bandit"]
    assert made.to_runner().parameters["config"] == preset("bandit").model_dump(mode="json")


def test_version_names_settings_and_schema() -> None:
    made = by_name()["starpo/bandit"]
    version = made.to_runner().version
    assert version == by_name()["starpo/bandit"].to_runner().version
    changed = replace(made, settings={"config": {**made.settings["config"], "seed": 7}}).to_runner()
    schema = made.to_runner()
    schema._parameter_openapi_schema = schema._parameter_openapi_schema.model_copy(update={"required": ["seed"]})
    assert len({version, changed.version, schema.versioned().version}) == 3


def test_form_has_types_bounds_and_meanings() -> None:
    schema = by_name()["starpo/sokoban"].to_runner()._parameter_openapi_schema
    definitions = schema.model_dump()["definitions"]
    keep = definitions["FilterConfig"]["properties"]["keep"]
    assert (keep["type"], keep["exclusiveMinimum"], keep["maximum"]) == ("number", 0.0, 1.0)
    assert "share" in keep["description"].lower()
    by_name_or_target = definitions["FilterConfig"]["properties"]["strategy"]["anyOf"]
    assert "top_fraction" in by_name_or_target[0]["enum"]
    assert "torch" in definitions["RolloutConfig"]["properties"]["engine"]["enum"]
    assert definitions["FilterConfig"]["additionalProperties"] is False
