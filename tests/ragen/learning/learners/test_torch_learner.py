"""The torch learner: exact gradients, exact repetition, exact continuation, and errors that name the cause."""

import dataclasses
import gc
import hashlib
import os
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.device import Device
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.update import CriticConfig, OptimiserConfig, UpdateConfig
from starpo.ragen.core.errors import LearnerError, PolicyError
from starpo.ragen.learning.learners.measuring import token_logprobs
from starpo.ragen.learning.learners.models.trained_model import TorchModel
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.learning.learners.update_inputs import UpdateInputs
from tests.ragen.learning.learners.conftest import change, loaded

SGD_LIKE = OptimiserConfig(learning_rate=1e-3, max_gradient_norm=None)
GRPO = UpdateConfig(advantage="grpo", advantage_scale="batch", num_minibatches=3, optimiser=SGD_LIKE)
PPO = UpdateConfig(num_minibatches=2, optimiser=SGD_LIKE, critic=CriticConfig(optimiser=SGD_LIKE))


def weights(learner: TorchLearner, tmp_path: Path) -> dict[str, torch.Tensor]:
    learner.save(str(tmp_path), "after")
    return dict(load_policy(str(tmp_path))[0].named_parameters())


def digest(folder: Path) -> str:
    return hashlib.sha256(b"".join(f.name.encode() + f.read_bytes() for f in sorted(folder.iterdir()))).hexdigest()


def test_dropped_learner_frees_memory_at_once(policy_folder, make_trajectories, context):
    """Without the garbage collector, which may come gigabytes later."""
    gc.disable()
    try:
        learner = loaded(change(GRPO, kl_coefficient=0.1), policy_folder, policy_folder)
        learner.update(make_trajectories(4), context)
        policy = weakref.ref(learner._checkpoint.policy)
        del learner
        assert policy() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_match_naive_loop(policy_folder, make_trajectories, context, temperature):
    trajectories = make_trajectories(6, context="window")
    learner = loaded(GRPO, policy_folder)
    actual = token_logprobs(learner, trajectories, dataclasses.replace(context, temperature=temperature))
    model, _ = load_policy(policy_folder)
    expected = []
    for segment in (segment for trajectory in trajectories for segment in trajectory.segments):
        token_ids = torch.from_numpy(segment.token_ids)
        logprobs = torch.log_softmax(model(input_ids=token_ids[None]).logits[0, :-1] / temperature, -1)
        chosen = logprobs.gather(1, token_ids[1:, None])[:, 0]
        expected += chosen[torch.from_numpy(segment.response_mask[1:])].tolist()
    assert actual.tolist() == pytest.approx(expected, abs=1e-4)
    after, untouched = (each.update(trajectories, context) for each in (learner, loaded(GRPO, policy_folder)))
    assert after.samples.equals(untouched.samples)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "dr_grpo"])
@pytest.mark.parametrize("context_mode", ["full", "window"])
def test_gradient_matches_naive_loop(policy_folder, make_trajectories, context, aggregation, context_mode):
    """One step from the old policy: the ratio is 1, so the gradient is that of -sum(weight * advantage * logprob)."""
    trajectories = make_trajectories(6, context=context_mode)
    config = change(GRPO, num_minibatches=1, advantage_scale="none", aggregation=aggregation, micro_batch_tokens=50)
    result = loaded(config, policy_folder).update(trajectories, context)

    model, _ = load_policy(policy_folder)
    total, all_tokens = 0.0, sum(t.num_response_tokens for t in trajectories)
    for trajectory in trajectories:
        group = [t.trajectory_return for t in trajectories if t.group_id == trajectory.group_id]
        advantage = trajectory.trajectory_return - sum(group) / len(group)
        denominator = {
            "token_mean": all_tokens,
            "sequence_mean": 6 * trajectory.num_response_tokens,
            "dr_grpo": 6 * context.max_response_tokens,
        }[aggregation]
        for segment in trajectory.segments:
            token_ids = torch.from_numpy(segment.token_ids)
            logprobs = torch.log_softmax(model(input_ids=token_ids[None]).logits[0, :-1], -1)
            chosen = logprobs.gather(1, token_ids[1:, None])[:, 0]
            total = total - (chosen * torch.from_numpy(segment.response_mask[1:])).sum() * advantage / denominator
    total.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
    assert result.metrics["update/gradient_norm"] == pytest.approx(float(norm), rel=1e-4)
    assert result.metrics["update/ratio_max"] == pytest.approx(1, abs=1e-5)
    assert result.metrics["update/clip_fraction"] == 0


@pytest.mark.parametrize("config", [GRPO, PPO], ids=["grpo", "ppo"])
def test_micro_batches_change_nothing_but_rounding(policy_folder, make_trajectories, context, config, tmp_path):
    trajectories = make_trajectories(8)
    norms = [
        loaded(change(config, micro_batch_tokens=budget), policy_folder).update(trajectories, context).metrics
        for budget in (16, 100, 100_000)
    ]
    for other in norms[1:]:
        assert other.keys() == norms[0].keys()
        for name in ("update/gradient_norm", "update/policy_loss", "update/kl_behaviour"):
            assert other[name] == pytest.approx(norms[0][name], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("micro_batch_tokens", [8192, 40])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_kl_cov_ignores_zero_advantages(policy_folder, make_trajectories, context, dtype, micro_batch_tokens):
    equal = [
        dataclasses.replace(one, turn_rewards=0 * one.turn_rewards, trajectory_return=0.0, normalised_return=0.0)
        for one in make_trajectories(12)
    ]
    options = {"share": 1.0, "coefficient": 1.0}
    config = change(GRPO, surrogate="kl_cov", surrogate_options=options, dtype=dtype)
    learner = loaded(change(config, micro_batch_tokens=micro_batch_tokens), policy_folder)
    assert learner.update(equal, context).metrics["update/gradient_norm"] == 0


def test_logprobs_move_with_advantages(policy_folder, make_trajectories, context):
    trajectories = make_trajectories(4)
    config = change(GRPO, num_minibatches=1)
    learner = loaded(config, policy_folder)
    samples = learner.update(trajectories, context).samples
    # kl_behaviour is behaviour - policy after an update; a negligible learning rate gives the same before it
    before = loaded(change(config, optimiser=OptimiserConfig(learning_rate=1e-12)), policy_folder)
    unmoved = before.update(trajectories, context).samples
    rise = np.array(unmoved["kl_behaviour"]) - np.array(samples["kl_behaviour"])
    advantage = np.array(samples["advantage"])
    assert np.corrcoef(rise, advantage)[0, 1] > 0.8


PROCESS = """
import sys
from tests_conftest import random_trajectory, CONTEXT
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.torch_learner import TorchLearner
learner = TorchLearner(UpdateConfig.model_validate_json(sys.argv[2]), num_threads=int(sys.argv[4]))
learner.load(sys.argv[1], "start", sys.argv[1])
for _ in range(2):
    result = learner.update([random_trajectory(i, sys.argv[6], int(sys.argv[5])) for i in range(8)], CONTEXT)
learner.save(sys.argv[3], "after")
print(sorted(result.metrics.items()), result.samples.to_pylist())
"""


def in_two_processes(
    policy_folder: str, config: UpdateConfig, tmp_path: Path, num_turns: int = 2, context: str = "window"
) -> str:
    """Train in two processes with one and two threads, compare all results, and return the checkpoint's digest."""
    (tmp_path / "tests_conftest.py").write_bytes((Path(__file__).parent / "conftest.py").read_bytes())
    paths = f"{Path(__file__).parents[4]}:{tmp_path}"
    processes = []
    for threads in ("1", "2"):
        given = policy_folder, config.model_dump_json(), str(tmp_path / threads), threads, str(num_turns), context
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": threads, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", PROCESS, *given]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment))
    first, second = (process.communicate()[0] for process in processes)
    assert len(first) > 1000
    assert first == second
    assert digest(tmp_path / "1") == digest(tmp_path / "2")
    return digest(tmp_path / "1")


@pytest.mark.ci
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_processes_and_threads_give_same_bytes(policy_folder, tmp_path, dtype):
    muon = OptimiserConfig(type="muon", learning_rate=1e-3)
    config = change(PPO, kl_coefficient=0.1, kl_estimator="k3", optimiser=muon, micro_batch_tokens=64, dtype=dtype)
    in_two_processes(policy_folder, config, tmp_path)


@pytest.mark.ci
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("base", [GRPO, PPO], ids=["grpo", "ppo"])
def test_thread_count_changes_no_bit(policy_folder, make_trajectories, context, tmp_path, base, dtype):
    config = change(base, micro_batch_tokens=40, dtype=dtype)
    results = {}
    for num_threads in (1, 2, 5):
        learner = TorchLearner(config, num_threads=num_threads)
        learner.load(policy_folder, "start", None)
        results[num_threads] = learner.update(make_trajectories(8), context)
        learner.save(str(tmp_path / str(num_threads)), "after")
    assert results[1].metrics == results[2].metrics == results[5].metrics
    assert results[1].samples.equals(results[5].samples)
    assert digest(tmp_path / "1") == digest(tmp_path / "2") == digest(tmp_path / "5")


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["adamw", "muon"])
@pytest.mark.parametrize("base", [GRPO, PPO], ids=["grpo", "ppo"])
def test_resumed_training_equals_uninterrupted(policy_folder, make_trajectories, context, tmp_path, kind, base):
    optimiser = OptimiserConfig(type=kind, learning_rate=1e-3, weight_decay=0.1)
    config = change(base, optimiser=optimiser, critic=CriticConfig(optimiser=optimiser), kl_coefficient=0.1)
    trajectories, later = make_trajectories(8), dataclasses.replace(context, iteration=1, seed=6)
    steady = loaded(config, policy_folder, policy_folder)
    steady.update(trajectories, context)
    steady.save(str(tmp_path / "middle"), "middle")
    expected = steady.update(trajectories, later)
    steady.save(str(tmp_path / "steady"), "end")

    resumed = loaded(config, str(tmp_path / "middle"), policy_folder)
    result = resumed.update(trajectories, later)
    resumed.save(str(tmp_path / "resumed"), "end")
    assert result.metrics == expected.metrics
    assert result.samples.equals(expected.samples)
    assert digest(tmp_path / "resumed") == digest(tmp_path / "steady")


def test_load_skips_only_same_checkpoint(policy_folder, make_trajectories, context, tmp_path):
    learner = loaded(GRPO, policy_folder)
    first = learner.update(make_trajectories(4), context).metrics
    learner.load(policy_folder, "start", None)  # it has moved since, so this goes back
    assert learner.update(make_trajectories(4), context).metrics == first
    learner.save(str(tmp_path / "x"), "next")
    learner.load("/nowhere", "next", None)  # loaded already, so the folder is not read


def test_samples_follow_their_contract(policy_folder, make_trajectories, context):
    validate = pytest.importorskip("starpo.schemas.validate").validate
    trajectories = make_trajectories(6)
    trajectories[2] = dataclasses.replace(trajectories[2], segments=())
    config = change(GRPO, kl_coefficient=0.1, num_epochs=2)
    result = loaded(config, policy_folder, policy_folder).update(trajectories, context)
    validate(result.samples, "samples")
    assert result.samples["trajectory_id"].to_pylist() == [t.trajectory_id for t in trajectories]
    assert result.samples["num_tokens"].to_pylist() == [t.num_response_tokens for t in trajectories]
    assert sum(result.samples["loss_share"].to_pylist()) == pytest.approx(1)
    assert result.samples["kl_reference"].null_count == 0
    assert result.samples["mean_ratio"].to_pylist() == pytest.approx([1] * 6, abs=0.2)  # over two passes
    assert result.metrics["update/num_without_tokens"] == 1
    assert result.metrics["update/num_steps"] == 6  # two epochs of three mini-batches
    assert result.metrics["update/gradient_norm_max"] > result.metrics["update/gradient_norm"]  # the mean


def test_trained_tokens_average_to_samples(policy_folder, make_trajectories, context):
    validate = pytest.importorskip("starpo.schemas.validate").validate
    trajectories = make_trajectories(6)
    trajectories[2] = dataclasses.replace(trajectories[2], segments=())
    config = change(GRPO, num_epochs=2, clip_low=1e-4, clip_high=1e-4)
    result = loaded(config, policy_folder).update(trajectories, context)
    tokens = result.trained_tokens()
    rows = tokens.to_pylist()
    validate(tokens, "trained_tokens")
    columns = {"advantages": "advantage", "ratios": "mean_ratio", "clip_fractions": "clip_fraction"}
    for trajectory, sample in zip(trajectories, result.samples.to_pylist(), strict=True):
        by_turn = [row for row in rows if row["trajectory_id"] == trajectory.trajectory_id]
        turns = [turn for one in trajectory.segments for turn in one.turn[one.response_mask].tolist()]
        assert [row["turn"] for row in by_turn for _ in row["has_loss"]] == turns
        for by_token, mean in (columns | {"entropies": "entropy"}).items():
            values = [value for row in by_turn for value in row[by_token]]
            assert len(values) == len(turns)
            assert not values or np.mean(values) == pytest.approx(sample[mean], rel=1e-5), mean
    assert all(all(row["has_loss"]) for row in rows)
    assert any(value > 0 for row in rows for value in row["clip_fractions"])


def test_behaviour_gap_uses_stored_logprobs(policy_folder, make_trajectories, context):
    trajectories = make_trajectories(2)
    learner = loaded(change(GRPO, num_minibatches=1), policy_folder)
    stored = np.concatenate([s.behaviour_logprobs[s.response_mask] for t in trajectories for s in t.segments])
    gaps = np.abs(token_logprobs(learner, trajectories, context).numpy() - stored)
    result = learner.update(trajectories, context)
    largest = [trajectory_gaps.max() for trajectory_gaps in np.split(gaps, [trajectories[0].num_response_tokens])]
    assert result.samples["old_behaviour_gap"].to_pylist() == pytest.approx(largest)
    assert result.metrics["update/old_behaviour_gap_max"] == pytest.approx(gaps.max())
    assert result.metrics["update/old_behaviour_gap_mean"] == pytest.approx(gaps.mean())


def test_importance_weights_are_truncated(policy_folder, make_trajectories, context):
    """Stored log-probs far below the policy's: every weight is truncated at the cap, which doubles the gradient."""
    trajectories = [
        dataclasses.replace(
            trajectory,
            segments=tuple(
                dataclasses.replace(s, behaviour_logprobs=np.where(s.response_mask, -50, 0).astype(np.float32))
                for s in trajectory.segments
            ),
        )
        for trajectory in make_trajectories(4)
    ]
    config = change(GRPO, num_minibatches=1)
    plain = loaded(config, policy_folder).update(trajectories, context).metrics
    capped = loaded(change(config, importance_cap=2.0), policy_folder).update(trajectories, context).metrics
    assert capped["update/gradient_norm"] == pytest.approx(2 * plain["update/gradient_norm"], rel=1e-4)


def test_entropy_bonus_and_kl_penalty_act(policy_folder, make_trajectories, context, tmp_path):
    level = [dataclasses.replace(t, normalised_return=0.0) for t in make_trajectories(4)]  # no advantage at all
    optimiser = OptimiserConfig(learning_rate=3e-3)
    bonus = loaded(change(GRPO, entropy_coefficient=1.0, optimiser=optimiser), policy_folder)
    first, second = (bonus.update(level, context).metrics["update/entropy"] for _ in range(2))
    assert second > first

    drifted = loaded(change(GRPO, optimiser=optimiser), policy_folder)
    drifted.update(make_trajectories(4), context)
    drifted.save(str(tmp_path / "drifted"), "drifted")
    pulled = TorchLearner(change(GRPO, kl_coefficient=10.0, kl_estimator="k2", optimiser=SGD_LIKE), num_threads=1)
    pulled.load(str(tmp_path / "drifted"), "drifted", policy_folder)
    divergences = [pulled.update(level, context).metrics["update/kl_reference"] for _ in range(4)]
    assert divergences[-1] < divergences[0]


def test_warm_up_trains_only_the_critic(policy_folder, make_trajectories, context, tmp_path):
    config = change(PPO, critic=CriticConfig(optimiser=SGD_LIKE, warmup_updates=1))
    learner = loaded(config, policy_folder)
    first = learner.update(make_trajectories(4), context)
    start = dict(load_policy(policy_folder)[0].named_parameters())
    assert all(torch.equal(w, start[name]) for name, w in weights(learner, tmp_path / "a").items())
    assert first.metrics["update/num_steps"] == 0
    assert first.metrics["update/value_loss"] > 0
    assert "update/policy_loss" not in first.metrics
    assert set(first.samples["mean_ratio"].to_pylist()) == {1.0}
    assert set(first.samples["loss_share"].to_pylist()) == {0.0}
    assert not any(any(has_loss) for has_loss in first.trained_tokens()["has_loss"].to_pylist())
    second = learner.update(make_trajectories(4), dataclasses.replace(context, iteration=1))
    assert second.metrics["update/num_steps"] == 2


@pytest.mark.parametrize("advantage", ["gae", "turn_gae"])  # fitted at all tokens, and at the first one of each turn
def test_critic_learns_to_explain_the_returns(policy_folder, make_trajectories, context, advantage):
    fast = OptimiserConfig(learning_rate=1e-2)
    learner = loaded(
        change(PPO, advantage=advantage, critic=CriticConfig(optimiser=fast, clip_value=None, warmup_updates=100)),
        policy_folder,
    )
    trajectories = make_trajectories(4, group_size=1)  # equal contexts with different returns cannot be told apart
    explained = [learner.update(trajectories, context).metrics["update/explained_variance"] for _ in range(15)]
    assert explained[0] == pytest.approx(0, abs=1e-6)  # a head of zeros
    assert explained[-1] > 0.5


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.05), ("float16", 0.005)])
def test_half_precision_keeps_float32_state(policy_folder, make_trajectories, context, tmp_path, dtype, tolerance):
    config = change(GRPO, num_minibatches=1)
    exact = loaded(config, policy_folder).update(make_trajectories(4), context).metrics
    coarse = loaded(change(config, dtype=dtype), policy_folder)
    metrics = coarse.update(make_trajectories(4), context).metrics
    assert metrics["update/gradient_norm"] == pytest.approx(exact["update/gradient_norm"], rel=tolerance)
    assert metrics["update/gradient_norm"] != exact["update/gradient_norm"]
    assert {w.dtype for w in weights(coarse, tmp_path / "c").values()} == {torch.float32}


def test_changed_optimiser_restarts_and_is_counted(policy_folder, make_trajectories, context, tmp_path):
    learner = loaded(GRPO, policy_folder)
    assert learner.update(make_trajectories(4), context).metrics["update/num_restarted_optimisers"] == 0
    learner.save(str(tmp_path / "c"), "c")
    other = loaded(change(GRPO, optimiser=OptimiserConfig(type="muon")), str(tmp_path / "c"))
    assert other.update(make_trajectories(4), context).metrics["update/num_restarted_optimisers"] == 1


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("config", [GRPO, change(PPO, kl_coefficient=0.1)], ids=["grpo", "ppo with KL"])
def test_gpu_bytes_repeat_across_processes(make_trajectories, context, tmp_path, config, dtype):
    """Contexts are so long that a kernel splits them, and heads so wide that it is the one that large models take."""
    sizes = {"hidden_size": 512, "num_layers": 4, "num_heads": 8, "num_kv_heads": 4, "intermediate_size": 1024}
    folder, tokenizer = tmp_path / "policy", make_tokenizer()
    make_model(TinyPolicy(**sizes), tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = change(config, dtype=dtype)
    learner = loaded(config, str(folder), str(folder))
    for _ in range(2):
        learner.update(make_trajectories(8, context="full", num_turns=100), context)
    learner.save(str(tmp_path / "here"), "after")
    assert learner.is_deterministic
    assert in_two_processes(str(folder), config, tmp_path, 100, "full") == digest(tmp_path / "here")


@pytest.mark.gpu
def test_the_gpu_follows_the_cpu(policy_folder, make_trajectories, context, monkeypatch):
    """Rows of prefix trees, their masks and the scores of a share are the same there, up to rounding."""
    config, trajectories = change(PPO, kl_coefficient=0.1, scored_share=0.5), make_trajectories(16)
    on_gpu = loaded(config, policy_folder, policy_folder)
    assert on_gpu.device.is_gpu
    metrics = on_gpu.update(trajectories, context).metrics
    monkeypatch.setattr(Device, "here", Device)
    expected = loaded(config, policy_folder, policy_folder).update(trajectories, context).metrics
    assert metrics == pytest.approx(expected, rel=1e-2, abs=1e-4)


@pytest.mark.parametrize(
    "config",
    [
        change(PPO, kl_coefficient=0.1, micro_batch_tokens=40, num_epochs=2),
        change(GRPO, scored_share=0.34, micro_batch_tokens=40),  # the log-probs of the rollout are not believed
        change(PPO, critic=CriticConfig(optimiser=SGD_LIKE, warmup_updates=1)),
        change(GRPO, advantage="istar", advantage_scale="none"),
    ],
    ids=["critic and reference", "a share", "only the critic", "process reward model"],
)
def test_progress_counts_to_fixed_total(config, policy_folder, make_trajectories, context):
    reports = []
    learner = loaded(config, policy_folder, policy_folder)
    learner.update(make_trajectories(12), context, lambda *progress: reports.append(progress))
    done, totals = zip(*reports, strict=True)
    assert list(done) == sorted(set(done))
    assert set(totals) == {done[-1]}


def test_dynamic_turn_order_reports_no_progress(policy_folder, make_trajectories, context):
    reports = []
    learner = loaded(change(GRPO, turn_order="reverse"), policy_folder)
    learner.update(make_trajectories(4), context, lambda *progress: reports.append(progress))
    assert reports == []


@pytest.mark.parametrize("code", ["yield from ()", "pass"])
def test_turn_order_without_step_fails(policy_folder, make_trajectories, context, tmp_path, monkeypatch, code):
    (tmp_path / "idle_order.py").write_text(f"def order(minibatch):\n    {code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "idle_order", raising=False)
    learner = loaded(change(GRPO, turn_order="idle_order:order"), policy_folder)
    with pytest.raises(
        LearnerError, match=r"'idle_order:order' yields no step for a mini-batch of \d+ response tokens"
    ):
        learner.update(make_trajectories(4), context)


def test_global_random_state_is_not_touched(policy_folder, make_trajectories, context, tmp_path):
    before = torch.get_rng_state()
    learner = loaded(PPO, policy_folder)
    learner.update(make_trajectories(4), context)
    learner.save(str(tmp_path / "c"), "c")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("has_trajectories", [True, False])
def test_empty_data_error_keeps_checkpoint(policy_folder, make_trajectories, context, has_trajectories):
    silent = [dataclasses.replace(t, segments=()) for t in make_trajectories(2)] if has_trajectories else []
    learner = loaded(GRPO, policy_folder)
    with pytest.raises(LearnerError, match="nothing to train on"):
        learner.update(silent, context)
    learner.load("/nowhere", "start", None)


def test_nonfinite_loss_names_trajectory_blocks_save(policy_folder, make_trajectories, context, tmp_path):
    trajectories = make_trajectories(4, group_size=1)
    trajectories[2] = dataclasses.replace(trajectories[2], normalised_return=float("inf"))
    learner = loaded(change(GRPO, advantage="reinforce", advantage_scale="none"), policy_folder)
    with pytest.raises(LearnerError, match=r"policy's loss on a token of trajectory 't2' is -?(inf|nan)"):
        learner.update(trajectories, context)
    with pytest.raises(LearnerError, match=r"call load\(\)"):
        learner.save(str(tmp_path / "c"), "c")
    learner.load(policy_folder, "start", None)
    learner.update(make_trajectories(4), context)


def test_losses_are_checked_once_per_step(policy_folder, make_trajectories, context, monkeypatch):
    """Looking at one waits for a GPU, which then has nothing to do until the next is sent."""
    num_looks, sizes = [], []
    check, accumulate = UpdateInputs.check_finite, TorchModel.accumulate

    def counted(self, terms_N, model):
        num_looks.append(len(terms_N))
        check(self, terms_N, model)

    def measured(self, loss, batches, *rest):
        sizes.append(len(batches))
        return accumulate(self, loss, batches, *rest)

    monkeypatch.setattr(UpdateInputs, "check_finite", counted)
    monkeypatch.setattr(TorchModel, "accumulate", measured)
    loaded(change(GRPO, micro_batch_tokens=16), policy_folder).update(make_trajectories(12), context)
    assert min(sizes) > 1
    assert len(num_looks) == len(sizes) == GRPO.num_minibatches


def test_missing_reference_and_load_fail(policy_folder, make_trajectories, context):
    with pytest.raises(LearnerError, match=r"update.kl_coefficient = 0.1 needs the reference"):
        TorchLearner(change(GRPO, kl_coefficient=0.1)).load(policy_folder, "start", None)
    with pytest.raises(LearnerError, match=r"call load\(\)"):
        TorchLearner(GRPO).update(make_trajectories(2), context)
    with pytest.raises(PolicyError):
        TorchLearner(GRPO).load("/nowhere", "start", None)
