"""One learner at a time, and what a change of the device says. Derivation: test_derive.py."""

import pytest

from starpo.ragen.config.device import Device
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.runs import loaded_learner
from starpo.ragen.runs.loaded_learner import LoadedLearner
from starpo.ragen.runs.players import Players
from starpo.ragen.store import Store
from tests.ragen.runs.adapted import FIRST, H200, Adapted


class Ranks(Adapted):
    """Stand-in for processes that hold a GPU."""

    num_closed = 0

    def close(self) -> None:
        self.num_closed += 1


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> LoadedLearner:
    monkeypatch.setattr(loaded_learner, "load", lambda *_: Ranks)
    return LoadedLearner(Players())


def test_new_settings_close_previous_learner(loaded: LoadedLearner) -> None:
    one, other = UpdateConfig(), UpdateConfig(entropy_coefficient=0.1)
    first = loaded.of(one)
    assert loaded.of(one) is first
    assert first.num_closed == 0
    second = loaded.of(other)
    assert second is not first
    assert (first.num_closed, second.num_closed) == (1, 0)
    loaded.close()
    loaded.close()
    assert (first.num_closed, second.num_closed) == (1, 1)
    assert loaded.of(other) is not second


def test_device_change_warns_once(adapted_store: Store, loaded: LoadedLearner, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(loaded_learner._log, "warning", lambda text, *values: warnings.append(text % values))
    for here in (Device(), H200, H200):
        monkeypatch.setattr(Device, "here", lambda here=here: here)
        loaded.at(adapted_store, FIRST, UpdateConfig(), None)
    (warning,) = warnings
    assert "was made on a CPU and is trained on an NVIDIA H200 (driver 580.95.05" in warning
    assert "digests will differ" in warning
