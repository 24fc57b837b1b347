"""A run's learner and players end with it, however it ends."""

import pytest

from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.runs import loaded_learner
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.players import Players


class Resource:
    """Learner or player that notes when it is closed."""

    def __init__(self, *_: object) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Stuck(Resource):
    """Learner whose ranks do not end."""

    def close(self) -> None:
        super().close()
        raise TimeoutError("ranks")


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_all_is_closed_at_every_end(monkeypatch: pytest.MonkeyPatch, error: type[BaseException] | None) -> None:
    monkeypatch.setattr(loaded_learner, "load", lambda *_: Resource)
    monkeypatch.setattr("starpo.ragen.agents.rollout.pools.worker_pool.WorkerPool", Resource)
    monkeypatch.setenv("STARPO_THREADS", "2")
    opened: list[Resource] = []

    def run() -> None:
        with ModelPlacement() as placement:
            opened.extend([placement.learner.of(UpdateConfig()), placement.players.player(RolloutConfig(), 2)])
            assert placement.players.player(RolloutConfig(), 2) is opened[1]
            with placement.learner.policies.new("a" * 32, 1) as folder:
                folders.append(folder)
            assert [one.is_closed for one in opened] == [False, False]
            if error is not None:
                raise error

    folders: list = []
    if error is None:
        run()
    else:
        with pytest.raises(error):
            run()
    assert [one.is_closed for one in opened] == [True, True]
    assert not folders[0].exists()


def test_players_close_despite_learner_error(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Players] = []
    monkeypatch.setattr(loaded_learner, "load", lambda *_: Stuck)
    monkeypatch.setattr(Players, "close", lambda players: closed.append(players))
    placement = ModelPlacement()
    placement.learner.of(UpdateConfig())
    with pytest.raises(TimeoutError, match="ranks"):
        placement.close()
    assert closed == [placement.players]
