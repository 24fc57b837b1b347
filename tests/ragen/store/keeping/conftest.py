"""Garbage collection without the pause for other writers."""

import pytest

from starpo.ragen.store.keeping import garbage


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "SETTLE_S", 0.0)
