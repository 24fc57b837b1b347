"""What is the same for every `ragen` command."""

import os
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

import starpo.flows.cli


@pytest.mark.parametrize(("said", "holds"), [(None, "1"), ("0", "0")])
def test_no_usage_data_leave_the_machine_unless_the_user_says_so(monkeypatch, said, holds):
    monkeypatch.setattr(os, "environ", {} if said is None else {"DO_NOT_TRACK": said})
    seen = []
    monkeypatch.setattr(starpo.flows.cli, "app", lambda: seen.append(dict(os.environ)))
    starpo.flows.cli.main()
    assert seen == [{"DO_NOT_TRACK": holds}]


def test_the_version_is_that_of_the_package() -> None:
    result = CliRunner().invoke(starpo.flows.cli.app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"starpo {version('starpo')}\n")
