"""Two DeepSpeed ranks agree with the torch learner at every ZeRO stage, share its checkpoints, and report failures.

Tolerances: after three updates (of two steps each, learning rate 1e-3), trained weights and moments may differ by 3e-5
and metrics by 1e-4 of their size, because float32 sums have another order and nothing else differs. With 'istar',
which standardises the little that a process reward model has learned, weights may differ by 1e-4.
"""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import load_file

from starpo.ragen.config.deepspeed_learner import DeepSpeedConfig
from starpo.ragen.config.policy import FineTuning, PretrainedPolicy
from starpo.ragen.config.update import CriticConfig, LoraConfig, OptimiserConfig, PRMConfig, UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.examples import Example
from starpo.ragen.learning.imitation import fine_tune
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.learner import UpdateContext, UpdateResult
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.learning.stored_episodes import StoredEpisode, StoredEpisodes
from starpo.ragen.store.artifacts.files import entries_of
from tests.processes import has_ended
from tests.ragen.learning.learners.conftest import change, showing

pytest.importorskip("deepspeed", reason="deepspeed is not installed (pip install 'starpo[deepspeed]')")

from starpo.ragen.learning.learners.deepspeed import model as deepspeed_model
from starpo.ragen.learning.learners.deepspeed.learner import DeepSpeedLearner
from starpo.ragen.learning.learners.deepspeed.model import DeepSpeedModel
from starpo.ragen.learning.learners.deepspeed.ranks import RankProcesses

pytestmark = pytest.mark.timeout(300)

ADAMW = OptimiserConfig(learning_rate=1e-3, weight_decay=0.1)
PPO = UpdateConfig(
    num_minibatches=2, aggregation="token_mean", kl_coefficient=0.1, kl_estimator="k3", micro_batch_tokens=40,
    optimiser=ADAMW, critic=CriticConfig(optimiser=ADAMW),
)  # fmt: skip
GRPO = UpdateConfig(advantage="grpo", advantage_scale="batch", num_minibatches=2, optimiser=ADAMW)
ISTAR = UpdateConfig(
    advantage="istar", ratio="turn_geometric", num_minibatches=2, micro_batch_tokens=40,
    optimiser=ADAMW, prm=PRMConfig(optimiser=ADAMW),
)  # fmt: skip
LORA = LoraConfig(rank=4, alpha=8)
FILES = (
    "model.safetensors", "adapter_model.safetensors", "critic.safetensors", "prm.safetensors", "optimiser.safetensors",
)  # fmt: skip


def spread(config: UpdateConfig, stage: int = 2, **settings: Any) -> UpdateConfig:
    return change(config, learner="deepspeed", deepspeed=DeepSpeedConfig(num_ranks=2, zero_stage=stage, **settings))


def train(
    learner: Any,
    folder: str,
    trajectories: list[Trajectory],
    context: UpdateContext,
    output: Path,
    num_updates: int = 3,
) -> list[UpdateResult]:
    learner.load(folder, "start", folder)
    results = [
        learner.update(trajectories, dataclasses.replace(context, iteration=index, seed=index))
        for index in range(num_updates)
    ]
    learner.save(str(output), "end")
    return results


def assert_agree(one: list[UpdateResult], other: list[UpdateResult], rel: float = 1e-4) -> None:
    for expected, result in zip(one, other, strict=True):
        assert list(result.metrics) == list(expected.metrics)
        for name, value in expected.metrics.items():
            assert result.metrics[name] == pytest.approx(value, rel=rel, abs=rel / 10), name
        assert result.samples["trajectory_id"] == expected.samples["trajectory_id"]
        assert result.trained_tokens()["has_loss"] == expected.trained_tokens()["has_loss"]
        for name in ("advantage", "mean_ratio", "loss_share", "entropy", "num_tokens"):
            np.testing.assert_allclose(result.samples[name], expected.samples[name], rtol=rel, atol=rel / 10)


def assert_same_files(expected: Path, actual: Path, atol: float = 3e-5) -> None:
    assert sorted(f.name for f in actual.iterdir()) == sorted(f.name for f in expected.iterdir())
    for file in expected.iterdir():
        if file.name not in FILES:
            assert (actual / file.name).read_bytes() == file.read_bytes(), file.name
            continue
        tensors, others = load_file(file), load_file(actual / file.name)
        assert tensors.keys() == others.keys()
        for name, tensor in tensors.items():
            assert others[name].dtype == torch.float32
            torch.testing.assert_close(others[name], tensor, atol=atol, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


FIRST = {("grpo", 1), ("istar", 2), ("ppo", 3)}
"""Cases that the first tier runs: each estimator once, and both ends of sharding."""


@pytest.fixture(scope="module")
def ranks() -> Iterator[RankProcesses]:
    """Two ranks, used by the learners of this module one after another."""
    processes = RankProcesses(2)
    yield processes
    processes.close()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("base", "stage"),
    [
        pytest.param(base, stage, id=f"{name}-{stage}", marks=[] if (name, stage) in FIRST else pytest.mark.thorough)
        for name, base in (("grpo", GRPO), ("istar", ISTAR), ("ppo", PPO))
        for stage in (1, 2, 3)
    ],
)
def test_updates_agree_with_torch_learner(policy_folder, make_trajectories, context, tmp_path, ranks, base, stage):
    """Token counts differ between the ranks' shares, so a mean of the ranks' means would not agree."""
    trajectories = make_trajectories(7, num_turns=3)
    alone, team = TorchLearner(base, num_threads=1), DeepSpeedLearner(spread(base, stage), ranks=ranks)
    expected = train(alone, policy_folder, trajectories, context, tmp_path / "torch")
    assert_agree(expected, train(team, policy_folder, trajectories, context, tmp_path / "deepspeed"))
    assert_same_files(tmp_path / "torch", tmp_path / "deepspeed", 1e-4 if base is ISTAR else 3e-5)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("stage", "lora"),
    [(3, None), pytest.param(2, LORA, marks=pytest.mark.thorough), pytest.param(3, LORA, marks=pytest.mark.thorough)],
)
def test_fine_tuning_agrees_with_torch_learner(policy_folder, make_trajectories, tmp_path, ranks, stage, lora):
    """Examples of different lengths in batches of five, so that the ranks' shares differ."""
    segments = [segment for trajectory in make_trajectories(12) for segment in trajectory.segments]
    examples = [Example(segment.token_ids, segment.response_mask) for segment in segments]
    episodes = StoredEpisodes([StoredEpisode(examples, [])])
    tuning = FineTuning(steps=6, batch_size=5, learning_rate=1e-3, micro_batch_tokens=32, lora=lora)
    policy, reports = PretrainedPolicy(name_or_path=policy_folder, fine_tuning=tuning), []
    expected = fine_tune(policy, episodes, tmp_path / "torch")
    team = DeepSpeedLearner(spread(GRPO, stage), ranks=ranks)
    loss = fine_tune(policy, episodes, tmp_path / "ranks", (), lambda *step: reports.append(step), team)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert reports == [(step, 6) for step in range(1, 7)]
    assert_same_files(tmp_path / "torch", tmp_path / "ranks")
    weights, before = (load_file(Path(place) / FILES[0]) for place in (tmp_path / "ranks", policy_folder))
    assert not all(torch.equal(weights[name], tensor) for name, tensor in before.items())


@pytest.mark.ci
def test_ranks_score_the_same_share(policy_folder, make_trajectories, context, tmp_path, ranks):
    trajectories, base = make_trajectories(12), change(GRPO, scored_share=0.34)
    alone, team = TorchLearner(base, num_threads=1), DeepSpeedLearner(spread(base), ranks=ranks)
    expected = train(alone, policy_folder, trajectories, context, tmp_path / "torch", num_updates=1)
    results = train(team, policy_folder, trajectories, context, tmp_path / "deepspeed", num_updates=1)
    assert_agree(expected, results)
    is_scored = results[0].samples["kl_behaviour"].is_valid()
    assert is_scored == expected[0].samples["kl_behaviour"].is_valid()
    assert sum(is_scored.to_pylist()) == 4  # one group of three


@pytest.mark.ci
def test_rank_zero_reports_update_progress(policy_folder, make_trajectories, context, ranks):
    learner, reports = DeepSpeedLearner(spread(GRPO), ranks=ranks), []
    learner.load(policy_folder, "start", None)
    learner.update(make_trajectories(8), context, lambda *progress: reports.append(progress))
    assert len(reports) > 2
    assert {total for _, total in reports} == {reports[-1][0]}


@pytest.mark.ci
def test_update_listens_on_localhost_only(policy_folder, make_trajectories, context, ranks):
    learner = DeepSpeedLearner(spread(GRPO), ranks=ranks)
    learner.load(policy_folder, "start", None)
    update = threading.Thread(target=learner.update, args=(make_trajectories(8), context))
    update.start()
    addresses, pids = set(), set()
    while update.is_alive():
        for process in psutil.Process().children(recursive=True):  # one that has just begun is a fork of this process
            with suppress(psutil.NoSuchProcess):  # others come and go
                if str(ranks._folder) in " ".join(process.cmdline()):
                    pids.add(process.pid)
                    connections = process.net_connections("inet")
                    addresses |= {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
    update.join()
    assert addresses == {"127.0.0.1"}  # over which ranks on CPUs communicate
    assert len(pids) == 2


@pytest.mark.parametrize(("rank", "kept"), [(0, ["head"]), (1, [])])
def test_rank_zero_alone_keeps_gathered_weights(monkeypatch, rank, kept):
    """Copies on all ranks of a node would take its memory as many times."""
    gathered = []
    monkeypatch.setattr(deepspeed_model.dist, "get_rank", lambda: rank)
    monkeypatch.setattr(deepspeed_model, "safe_get_full_fp32_param", lambda p: gathered.append(p) or p)
    model = object.__new__(DeepSpeedModel)
    model._parameters = {"head": torch.ones(2)}
    assert list(model.weights()) == kept
    assert len(gathered) == 1


@pytest.mark.ci
@pytest.mark.parametrize("stage", [pytest.param(2, marks=pytest.mark.thorough), 3])
def test_adapters_agree_with_the_torch_learner(policy_folder, make_trajectories, context, tmp_path, ranks, stage):
    """LoRA of policy and critic, with the policy without its adapters as reference, and activation checkpointing."""
    base = change(PPO, lora=LORA, activation_checkpointing=True)
    alone, team = TorchLearner(base, num_threads=1), DeepSpeedLearner(spread(base, stage), ranks=ranks)
    expected = train(alone, policy_folder, make_trajectories(4), context, tmp_path / "torch")
    assert_agree(expected, train(team, policy_folder, make_trajectories(4), context, tmp_path / "deepspeed"))
    assert_same_files(tmp_path / "torch", tmp_path / "deepspeed")
    assert not (tmp_path / "deepspeed" / "model.safetensors").exists()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("stage", "lora"),
    [(3, None), (2, LORA), pytest.param(2, None, marks=pytest.mark.thorough),
     pytest.param(3, LORA, marks=pytest.mark.thorough)],
)  # fmt: skip
def test_images_agree_with_the_torch_learner(visual_folder, make_trajectories, context, tmp_path, ranks, stage, lora):
    """With three rows in a mini-batch, a rank gets micro-batches without a response, in which it must look as well."""
    base, trajectories = change(GRPO, lora=lora, micro_batch_tokens=24), showing(make_trajectories(5))
    alone, team = TorchLearner(base, num_threads=1), DeepSpeedLearner(spread(base, stage), ranks=ranks)
    expected = train(alone, visual_folder, trajectories, context, tmp_path / "torch")
    assert_agree(expected, train(team, visual_folder, trajectories, context, tmp_path / "deepspeed"))
    assert_same_files(tmp_path / "torch", tmp_path / "deepspeed")
    stored = load_file(tmp_path / "torch" / FILES[lora is not None])
    trained = [name for name in stored if "vision.colours" in name]
    assert len(trained) == 2  # weight and bias, or both matrices of the adapter
    if lora is None:
        before = load_file(Path(visual_folder) / FILES[0])
        assert not any(torch.equal(stored[name], before[name]) for name in trained)


@pytest.mark.ci
def test_changing_learner_keeps_optimiser_state(policy_folder, make_trajectories, context, tmp_path, ranks):
    """torch, DeepSpeed with ZeRO 3, DeepSpeed with ZeRO 1 and offload, torch: the same result as torch throughout."""
    trajectories = make_trajectories(6)
    contexts = [dataclasses.replace(context, iteration=index, seed=index) for index in range(4)]
    steady = TorchLearner(PPO, num_threads=1)
    steady.load(policy_folder, "start", policy_folder)
    expected = [steady.update(trajectories, c) for c in contexts]
    steady.save(str(tmp_path / "steady"), "end")

    def learners() -> Iterator[Any]:
        yield TorchLearner(PPO, num_threads=1)
        yield DeepSpeedLearner(spread(PPO, 3), ranks=ranks)
        yield DeepSpeedLearner(spread(PPO, 1, offload_optimizer=True), ranks=ranks)
        yield TorchLearner(PPO, num_threads=1)

    folder, results = policy_folder, []
    for index, (learner, at) in enumerate(zip(learners(), contexts, strict=True)):
        learner.load(folder, f"c{index}", policy_folder)
        results.append(learner.update(trajectories, at))
        folder = str(tmp_path / f"c{index + 1}")
        learner.save(folder, f"c{index + 1}")
    assert_agree(expected, results)
    assert_same_files(tmp_path / "steady", Path(folder))


@pytest.mark.thorough
def test_bfloat16_keeps_master_weights(policy_folder, make_trajectories, context, tmp_path, ranks):
    coarse = DeepSpeedLearner(spread(change(GRPO, dtype="bfloat16"), 2), ranks=ranks)
    coarse.load(policy_folder, "start", None)
    coarse.save(str(tmp_path / "untouched"), "start")  # loading loses no precision
    start = load_file(Path(policy_folder) / "model.safetensors")
    untouched = load_file(tmp_path / "untouched" / "model.safetensors")
    assert all(torch.equal(untouched[name], tensor) for name, tensor in start.items())
    exact = TorchLearner(change(GRPO, num_epochs=1), num_threads=1)
    expected = train(exact, policy_folder, make_trajectories(4), context, tmp_path / "exact", 1)[0].metrics
    metrics = train(coarse, policy_folder, make_trajectories(4), context, tmp_path / "coarse", 1)[0].metrics
    assert metrics["update/gradient_norm"] == pytest.approx(expected["update/gradient_norm"], rel=0.05)
    assert metrics["update/gradient_norm"] != expected["update/gradient_norm"]


@pytest.mark.thorough
def test_repeated_update_is_byte_identical(policy_folder, make_trajectories, context, tmp_path, ranks):
    learner = DeepSpeedLearner(spread(GRPO, 2), ranks=ranks)
    assert learner.is_deterministic == (not torch.cuda.is_available())
    for name in ("one", "two"):
        learner.load(policy_folder, name, None)
        learner.update(make_trajectories(6), context)
        learner.save(str(tmp_path / name), f"after {name}")
    for file in (tmp_path / "one").iterdir():
        assert (tmp_path / "two" / file.name).read_bytes() == file.read_bytes()
    assert learner.save_policy(str(tmp_path / "policy"), "after two") == entries_of(tmp_path / "two")
    assert not (tmp_path / "policy" / "optimiser.safetensors").exists()
    assert learner.checkpoint_key == "after two"


@pytest.mark.thorough
def test_update_errors_end_the_ranks(policy_folder, make_trajectories, context, tmp_path, ranks):
    """The last test with the shared ranks; it then starts others and kills one during an update."""
    learner = DeepSpeedLearner(spread(change(GRPO, advantage="reinforce", advantage_scale="none")), ranks=ranks)
    with pytest.raises(LearnerError, match=r"call load\(\)"):
        learner.update(make_trajectories(2), context)
    learner.load(policy_folder, "start", None)
    with pytest.raises(LearnerError, match="nothing to train on"):
        learner.update([], context)
    assert ranks.are_alive  # no request reached them
    pids = [connection.pid for connection in ranks._connections.values()]
    trajectories = make_trajectories(4, group_size=1)
    trajectories[2] = dataclasses.replace(trajectories[2], normalised_return=float("inf"))
    with pytest.raises(LearnerError, match=r"policy's loss on a token of trajectory 't2' is -?(inf|nan)"):
        learner.update(trajectories, context)
    assert_gone(pids)
    with pytest.raises(LearnerError, match=r"call load\(\)"):
        learner.save(str(tmp_path / "c"), "c")

    learner.load(policy_folder, "start", None)
    assert learner.update(make_trajectories(4), context).metrics["update/num_steps"] == 2
    assert learner._ranks is not None
    pids = {rank: connection.pid for rank, connection in learner._ranks._connections.items()}
    threading.Timer(0.5, lambda: os.kill(pids[1], signal.SIGKILL)).start()
    started = time.monotonic()
    with pytest.raises(LearnerError, match=r"rank 1 of 2 .* died, killed \(signal 9.*update again") as caught:
        update_for_ever(learner, make_trajectories(8), context)
    assert time.monotonic() - started < 60
    assert "Its last output:" in str(caught.value)
    assert_gone(pids.values())
    learner.close()


def update_for_ever(learner: DeepSpeedLearner, trajectories: list[Trajectory], context: UpdateContext) -> None:
    while True:
        learner.update(trajectories, context)


@pytest.mark.ci
def test_startup_failure_error_shows_output(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no room today >&2; test $RANK = 1 && exit 3; exec sleep 600\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(LearnerError, match=r"(?s)the 2 ranks .* did not start with exit status 3\..*no room today"):
        RankProcesses(2)
    assert not [p for p in psutil.Process().children(recursive=True) if str(program) in " ".join(p.cmdline())]


PARENT = """
import sys, time
from starpo.ragen.learning.learners.deepspeed.ranks import RankProcesses
ranks = RankProcesses(2)
print(*(process.pid for process in ranks._processes), flush=True)
time.sleep(600)
"""


@pytest.mark.thorough
def test_ranks_end_with_their_parent():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 2
    assert_gone(pids)


def assert_gone(pids: Collection[int]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        alive = [pid for pid in pids if not has_ended(pid)]
        if not alive:
            return
        time.sleep(0.1)
    raise AssertionError(f"still there: {alive}")


@pytest.mark.gpu
@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_every_gpu_takes_part_in_bfloat16(policy_folder, make_trajectories, context, tmp_path, stage, lora):
    base = change(PPO, dtype="bfloat16", lora=lora)
    spec = DeepSpeedConfig(num_ranks=torch.cuda.device_count(), zero_stage=stage)
    config = change(base, learner="deepspeed", deepspeed=spec)
    learner = DeepSpeedLearner(config)
    try:
        result = train(learner, policy_folder, make_trajectories(8), context, tmp_path / "gpu")[0].metrics
    finally:
        learner.close()
    expected = train(TorchLearner(base), policy_folder, make_trajectories(8), context, tmp_path / "one")[0].metrics
    assert result["update/gradient_norm"] == pytest.approx(expected["update/gradient_norm"], rel=0.05)
