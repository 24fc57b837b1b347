"""Credentials from a Prefect block, which reach the environment and nothing else."""

import os
import traceback
from types import SimpleNamespace

import pytest
from prefect.blocks.system import Secret
from pydantic import SecretStr

from starpo.flows.store_credentials import VARIABLE, _variables, load_credentials
from starpo.ragen.core.errors import StoreError

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("prefect_server")]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", VARIABLE):
        monkeypatch.setenv(name, "before")
        monkeypatch.delenv(name)


def test_a_secret_block(monkeypatch: pytest.MonkeyPatch) -> None:
    Secret(value={"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "PATH": "/not/mine"}).save(
        "store", overwrite=True
    )
    monkeypatch.setenv(VARIABLE, "secret/store")
    path = os.environ["PATH"]
    load_credentials()
    assert (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]) == ("key", "secret")
    assert os.environ["PATH"] == path


def test_without_a_block_nothing_happens() -> None:
    before = dict(os.environ)
    load_credentials()
    assert dict(os.environ) == before


def test_no_such_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "secret/no-such-block")
    with pytest.raises(StoreError, match=r"RAGEN_STORE_BLOCK is 'secret/no-such-block'.*cannot be loaded"):
        load_credentials()


def test_a_block_that_holds_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    Secret(value="canary").save("other", overwrite=True)
    monkeypatch.setenv(VARIABLE, "secret/other")
    with pytest.raises(StoreError, match="holds no credentials") as caught:
        load_credentials()
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_blocks_of_prefect_aws() -> None:
    """An object with their fields stands in for the package."""
    aws = SimpleNamespace(
        aws_access_key_id="key",
        aws_secret_access_key=SecretStr("secret"),
        aws_session_token=None,
        profile_name=None,
        region_name="eu-west-1",
        aws_client_parameters=SimpleNamespace(endpoint_url="http://host:9000"),
    )
    assert _variables("aws-credentials/x", aws) == {
        "AWS_ENDPOINT_URL": "http://host:9000",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
