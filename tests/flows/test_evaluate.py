"""`starpo evaluate`: errors raised before any work."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.ragen.core.errors import ConfigError, StarPOError
from starpo.ragen.store import Store


def refusal(*arguments: str) -> StarPOError:
    """Return the error that `flows.cli.main` prints as one message, with exit code 1."""
    result = CliRunner().invoke(app, ["evaluate", *arguments])
    assert isinstance(result.exception, StarPOError), result.output
    return result.exception


@pytest.fixture
def store(tmp_path: Path) -> str:
    """URL of a store with a run that has no checkpoint yet."""
    from starpo.flows.presets import preset

    opened = Store(str(tmp_path / "store"))
    opened.runs.create("young", flow="starpo", preset="smoke", config=preset("smoke").model_dump(mode="json"))
    return opened.url


def test_recorded_sampling_cannot_be_overridden(store: str) -> None:
    error = refusal("young", "--store", store, "--set", "rollout.temperature=0.1")
    assert isinstance(error, ConfigError)
    assert "override rollout.temperature" in str(error)
    assert "rollout.engine" in str(error)


def test_run_without_a_checkpoint(store: str) -> None:
    assert "run young has no checkpoint yet" in str(refusal("young", "--store", store))


def test_server_without_an_address(store: str) -> None:
    error = refusal("young", "--store", store, "--set", "rollout.engine=openai")
    assert "needs openai.base_url" in str(error)
