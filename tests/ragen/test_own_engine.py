"""An engine and a learner are their own files and a registry line: everything else asks what they declare."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MINE = '''
from starpo.ragen.config.engine import EngineConfig
from starpo.ragen.config.learner import LearnerConfig, Sharding


class MyEngineConfig(EngineConfig):
    """How my engine holds the model."""

    share: float = 0.5

    def python(self):
        return "/opt/mine/python"

    def reserved(self, weights, context, gpu):
        return self.share * (gpu or 0), "my share"


class MyLearnerConfig(LearnerConfig):
    """How my learner shards the model."""

    num_parts: int = 2

    @property
    def sharding(self):
        return Sharding(self.num_parts, stage=3)
'''
PROGRAM = """
import sys
from starpo.ragen.core.lookup import Entry
from starpo.ragen.core.registry import ENGINES, LEARNERS

ENGINES["mine"] = Entry("starpo.ragen.agents.rollout.torch.engine:TorchEngine", options="mine:MyEngineConfig")
LEARNERS["mine"] = Entry("mine_learner:MyLearner", options="mine:MyLearnerConfig")

from starpo.flows.presets import preset
from starpo.ragen.runs.players import Players
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.config.reference import page
from starpo.ragen.sizing.architecture import architecture_of
from starpo.ragen.sizing.device import GIB, Machine
from starpo.ragen.sizing.estimate import estimate

plain = preset("sokoban-paper")
config = preset("sokoban-paper", {"rollout.engine": "mine", "rollout.mine.share": 0.75, "update.learner": "mine"})
assert "mine" not in plain.rollout.model_dump() and "mine" not in plain.update.effective()
assert config.rollout.model_dump()["mine"] == {"share": 0.75}
assert config.update.effective()["mine"] == {"num_parts": 2}
assert "deepspeed" not in config.update.effective()
assert "`rollout.mine.share`" in page() and "`update.mine.num_parts`" in page()
assert EngineSpec.of(config.rollout) == EngineSpec("mine", '{"share": 0.75}')
Players._workers = lambda players, *arguments: arguments
assert Players().player(config.rollout, 1)[1:] == (1, "/opt/mine/python")
architecture = architecture_of(config)
found = estimate(config, architecture, Machine(48 * GIB, 4))
parts = {part.name: part.size_bytes for part in found.memory.always}
assert found.num_gpus == 2 and parts["engine: weights and cache"] == 36 * GIB
assert parts["policy: weights"] == 2 * architecture.num_parameters / 2  # bfloat16, over two ranks
try:
    preset("sokoban-paper", {"update.learner": "mine", "update.optimiser.type": "muon"})
except ConfigError as error:
    assert "learner 'mine' shards over ranks" in str(error)
else:
    raise AssertionError("muon was accepted")
assert "vllm" not in sys.modules and "deepspeed" not in sys.modules
"""


@pytest.mark.ci
def test_custom_engine_and_learner_declarations_suffice(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(tmp_path)])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
