from starpo.flows.deployments import deployments


def test_replaying_is_a_deployment_whose_form_says_what_it_takes() -> None:
    (made,) = [made for made in deployments() if made.flow.name == "replay"]
    assert made.name == "updates"
    schema = made.to_runner()._parameter_openapi_schema.model_dump()
    assert schema["required"] == ["base"]
    assert "rollouts are replayed" in schema["properties"]["base"]["description"]
