"""A panel is played by the player of the rollouts: another one would hold the model a second time."""

from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.rollout.shards import ShardPlayer
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.runs.players import Players
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from starpo.tasks.evaluate import evaluate
from tests.examples import put_folder

POLICY = Path(__file__).parents[1] / "golden" / "checkpoint"


@pytest.mark.parametrize(("num_prompts", "num_shards"), [(2, 4), (48, 6)])
def test_panel_requests_at_least_rollout_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_prompts: int, num_shards: int
) -> None:
    """Four shards of a group of eight; a panel is cut into shards of at most eight trajectories."""
    requests = []
    player = Players.player

    def noted(players: Players, rollout: RolloutConfig, num_shards: int) -> ShardPlayer:
        requests.append(num_shards)
        return player(players, rollout, 1)

    monkeypatch.setattr(Players, "player", noted)
    store = Store(str(tmp_path))
    facts = {"stage": Stage(name="made", version=1), "settings": {}, "inputs": {}, "seed": None}
    put_folder(store, "checkpoint", str(POLICY), Facts(key="c" * 32, **facts))
    sizes = {"rollout.num_groups": 4, "rollout.shard_groups": 1, "rollout.group_size": 8}
    config = preset("smoke", {**sizes, "evaluation.num_prompts": num_prompts})
    settings = (config.environment, config.agent, config.rollout, config.evaluation)
    evaluate(0, "sokoban", *settings, "c" * 32, lineage=store.url).carry_out(store)
    assert requests == [num_shards]
