"""`infra/s3/ceph.py` without Ceph: every failure of its programs is a CephError."""

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def ceph(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("ceph", root / "infra/s3/ceph.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_program_that_hangs_is_named(ceph: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`start` and the tests of `starpo` catch only CephError; a query without an answer returns {} and is retried."""

    def hang(line: list[str], timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(line, timeout, stderr=b"connecting to 127.0.0.1")

    monkeypatch.setattr(subprocess, "run", hang)
    server = ceph.Ceph(tmp_path)
    with pytest.raises(
        ceph.CephError, match=r"^ceph osd new x 0 did not end within 120 s: connecting to 127\.0\.0\.1$"
    ):
        server._call("ceph", "osd", "new", "x", "0")
    assert server._ask("quorum_status") == {}


def test_ending_component_reported_at_once(ceph: ModuleType, tmp_path: Path) -> None:
    """With its exit code, its output and the free disk space: Ceph's monitor ends silently on a full disk."""
    programs = tmp_path / "root/usr/bin"
    programs.mkdir(parents=True)
    for name, line in {"radosgw": "", "ceph-mon": "echo no space; exit 28"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    server = ceph.Ceph(tmp_path)
    server.run.mkdir()
    message = (
        r"^ceph-mon ended with exit code 28; it printed: no space \(logs in .*/run-failed, [\d,]+ MiB free there\)$"
    )
    with pytest.raises(ceph.CephError, match=message):
        server._launch("1-ceph-mon", lambda: False, "ceph-mon", "-f")
