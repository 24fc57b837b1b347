"""What is the same for every `ragen` command."""

import os

import pytest

import flows.cli


@pytest.mark.parametrize(("said", "holds"), [(None, "1"), ("0", "0")])
def test_no_usage_data_leave_the_machine_unless_the_user_says_so(monkeypatch, said, holds):
    monkeypatch.setattr(os, "environ", {} if said is None else {"DO_NOT_TRACK": said})
    seen = []
    monkeypatch.setattr(flows.cli, "app", lambda: seen.append(dict(os.environ)))
    flows.cli.main()
    assert seen == [{"DO_NOT_TRACK": holds}]
