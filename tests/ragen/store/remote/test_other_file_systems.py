"""Stores on file systems that are not as Linux's own: without hard links, with spaces in names."""

import errno
import os
from pathlib import Path

import pytest

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP])
def test_missing_hard_links_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError, match=r"has no hard links.*\n.*set the store to another one"):
        Store(str(tmp_path)).runs.create("mine", flow="starpo", preset="smoke", config={})
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def test_place_may_have_spaces_and_accents(tmp_path: Path) -> None:
    place = tmp_path / "My Folder" / "Läufe #1 (ä%20)"
    Store(str(place)).runs.create("mine", flow="starpo", preset="smoke", config={})
    assert Store(str(place)).runs.names() == ("mine",)
    assert (place / "runs" / "mine" / "run.json").is_file()
