from starpo.flows.presets import names, preset
from starpo.flows.serve import deployments


def by_name() -> dict[str, object]:
    return {f"{made.flow_name}/{made.name}": made for made in deployments()}


def test_every_preset_is_a_deployment() -> None:
    assert {f"starpo/{name}" for name in names()} <= set(by_name())
    assert "warm-start/sokoban" in by_name()


def test_a_deployment_carries_its_presets_settings() -> None:
    made = by_name()["starpo/bandit"]
    assert made.parameters["config"] == preset("bandit").model_dump(mode="json")  # type: ignore[attr-defined]


def test_the_form_knows_types_bounds_and_meaning_of_settings() -> None:
    schema = by_name()["starpo/sokoban"]._parameter_openapi_schema  # type: ignore[attr-defined]
    definitions = schema.model_dump()["definitions"]
    keep = definitions["FilterConfig"]["properties"]["keep"]
    assert (keep["type"], keep["exclusiveMinimum"], keep["maximum"]) == ("number", 0.0, 1.0)
    assert "share" in keep["description"]
    by_name_or_target = definitions["FilterConfig"]["properties"]["strategy"]["anyOf"]
    assert "top_fraction" in by_name_or_target[0]["enum"]
    assert "torch" in definitions["RolloutConfig"]["properties"]["engine"]["enum"]
    assert definitions["FilterConfig"]["additionalProperties"] is False
