"""Engines 'vllm' and 'openai' with a real vLLM on the CPU, in the environment that `make vllm` creates.

Most tests run in that environment's interpreter, where the engine lives, and are skipped if it is missing. In the first
tier vLLM starts once, for a whole run in which the learner compares its log-probs with those of the rollouts.
"""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.agents.policy.load import load_policy, load_tokenizer
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.rollout.costs import take_usage
from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.openai.engine import OpenAIEngine
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.rollout import RolloutConfig, SamplingConfig
from starpo.ragen.config.teachers import ServerTeacher
from starpo.ragen.config.vllm_engine import VLLMEngineConfig
from starpo.ragen.core.errors import EngineError, MissingPackageError
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.learning.distillation.contexts import TeacherContexts
from starpo.ragen.learning.distillation.scoring import LoadedTeacher
from starpo.ragen.learning.distillation.served import score_on_server
from starpo.ragen.learning.metrics.table import metric_values
from starpo.ragen.store import Store
from starpo.schemas.validate import validate

pytestmark = pytest.mark.vllm

SHARDS = make_episodes([(f"g{number}", 1000 + number) for number in range(4)], group_size=4, shard_groups=2)
AGENT = AgentConfig(prompt="state", max_turns=5, max_actions=10, max_actions_per_turn=2)
ROLLOUT = RolloutConfig(engine="vllm", max_context_tokens=512, max_response_tokens=12)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two policies of one architecture with tied embeddings, like two checkpoints of a run."""
    import torch

    folders, tokenizer = [], make_tokenizer()
    for number in range(2):
        folder = str(tmp_path_factory.mktemp(f"policy{number}"))
        model = make_model(TinyPolicy(num_layers=2), tokenizer)
        generator = torch.Generator().manual_seed(number)
        for weight in model.parameters():
            weight.data += 0.05 * torch.randn(weight.shape, generator=generator)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        folders.append(folder)
    return folders


@pytest.fixture(scope="module")
def job(folders):
    return RolloutJob(folders[0], "key", FrozenLakeSettings(), AGENT, ROLLOUT.sampling, ROLLOUT.max_context_tokens)


@pytest.fixture(scope="module")
def pool(vllm_interpreter):
    return WorkerPool(EngineSpec.of(ROLLOUT), 1, vllm_interpreter)


@pytest.fixture(scope="module")
def facts(vllm_interpreter, folders, tmp_path_factory):
    """Measurements by `vllm_facts.py` in vLLM's own environment."""
    program = str(Path(__file__).parent / "vllm_facts.py")
    result = tmp_path_factory.mktemp("facts") / "facts.json"
    done = subprocess.run(
        [vllm_interpreter, program, *folders, str(result)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(result.read_text())


def worst_gap(turns, folder, temperature=1.0):
    """Largest difference between the stored log-probs and those of transformers, in nats per token."""
    import torch

    model, _ = load_policy(folder)
    context, worst = [], 0.0
    for row in turns.to_pylist():
        context = row["prompt_ids"] if row["is_context_start"] else context + row["prompt_ids"]
        if not row["response_ids"]:
            continue
        start, context = len(context), context + row["response_ids"]
        with torch.inference_mode():
            logprobs = (model(input_ids=torch.tensor([context])).logits[0] / temperature).log_softmax(-1)
        theirs = logprobs[start - 1 : -1].gather(-1, torch.tensor(row["response_ids"])[:, None])[:, 0]
        worst = max(worst, (theirs - torch.tensor(row["behaviour_logprobs"])).abs().max().item())
    return worst


@pytest.mark.usefixtures("vllm_interpreter", "prefect_server")
def test_run_trains_on_the_learners_logprobs(tmp_path: Path, begun: Callable[..., str]) -> None:
    """The second rollout is played with the weights of the first update."""
    store = Store(begun(tmp_path))
    run = starpo(preset("smoke", {"rollout.engine": "vllm"}), preset="smoke", store=store.url)
    records = store.runs.iterations(run)
    for stages in (records[0], records[1]):
        table = store.read_table("metrics", stages["update"]["metrics"])
        values = metric_values(table)
        assert values["update/old_behaviour_gap_max"] < 1e-4
    assert store.runs.state(run).status == "completed"


@pytest.mark.thorough
def test_turns_valid_with_policys_logprobs(job, pool, folders):
    turns, usage = take_usage(play_shards(pool, job, SHARDS))
    validate(turns, "turns")
    here = play_shards(LocalPlayer(TorchEngine(num_threads=1, device="cpu")), job, SHARDS)
    firsts = [t.filter(t.column("turn").to_numpy() == 0) for t in (turns, here)]
    for column in ("trajectory_id", "env_seed", "initial_state_digest", "prompt_ids"):
        assert firsts[0][column].to_pylist() == firsts[1][column].to_pylist()
    ids = turns["trajectory_id"].to_pylist()
    assert list(dict.fromkeys(ids)) == [episode.trajectory_id for shard in SHARDS for episode in shard]
    assert worst_gap(turns, folders[0]) < 1e-4
    assert usage["response_tokens"] == sum(map(len, turns["response_ids"].to_pylist()))
    assert usage["cached_prompt_tokens"] > 0


@pytest.mark.thorough
def test_next_checkpoint_played_in_same_process(job, pool, folders, vllm_interpreter):
    play_shards(pool, job, SHARDS)
    before = {worker.pid for worker in workers(vllm_interpreter)}
    turns, _ = take_usage(play_shards(pool, replace(job, folder=folders[1], checkpoint_key="k1"), SHARDS))
    assert worst_gap(turns, folders[1]) < 1e-4
    assert worst_gap(turns, folders[0]) > 0.01
    assert {worker.pid for worker in workers(vllm_interpreter)} == before


def workers(interpreter):
    """Return live workers with vLLM; tests of other files may have left workers of their own, idle or dead."""
    alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in alive if child.cmdline()[:1] == [interpreter]]


@pytest.mark.thorough
def test_worker_that_died_is_replaced(job, pool, vllm_interpreter):
    play_shards(pool, job, SHARDS)
    (victim,) = workers(vllm_interpreter)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait(10)
    turns, _ = take_usage(play_shards(pool, job, SHARDS))
    validate(turns, "turns")
    assert len(workers(vllm_interpreter)) == 1


def test_missing_interpreter_is_reported(monkeypatch):
    monkeypatch.setenv("STARPO_VLLM_PYTHON", "/nowhere/python")
    with pytest.raises(MissingPackageError, match=r"no '/nowhere/python' \(STARPO_VLLM_PYTHON\).*make vllm"):
        VLLMEngineConfig().python()


def test_interpreter_without_vllm_is_reported(job, monkeypatch):
    with pytest.raises(EngineError, match="engine 'vllm' needs vLLM, which this environment does not have"):
        play_shards(WorkerPool(EngineSpec.of(ROLLOUT), 1), job, SHARDS)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["temperature 1", "temperature 0.7", "temperature 0", "top_p 0.6"])
def test_logprobs_of_sampling_distribution(facts, name):
    assert facts["gaps"][name] < 1e-4


@pytest.mark.thorough
def test_update_reaches_the_tied_output_layer(facts):
    assert facts["probe_gap"] < 1e-4
    assert facts["probe_gap_after_update"] < 1e-4


@pytest.mark.thorough
def test_missing_output_layer_stops_run(facts):
    assert "differ from the checkpoint's own by" in facts["untied"]
    assert facts["gap_after_repair"] < 1e-4


@pytest.mark.thorough
def test_damaged_weights_stop_the_run(facts):
    assert "differ from the checkpoint's own by" in facts["damaged"]


@pytest.mark.thorough
def test_long_seeded_prompts_do_not_crash(facts):
    assert facts["num_long_prompts_answered"] == 12


@pytest.mark.thorough
def test_seeds_decide_the_tokens(facts):
    assert facts["same_seeds_same_tokens"]
    assert facts["other_seeds_other_tokens"]


@pytest.mark.thorough
def test_no_episode_waits_for_the_slowest(facts):
    """Some second turns begin before all first turns have ended."""
    first_ends = [step for step, turn, what in facts["trace"] if what == "end" and turn == 0]
    second_begins = [step for step, turn, what in facts["trace"] if what == "begin" and turn == 1]
    assert min(second_begins) < max(first_ends)


@pytest.mark.thorough
def test_unsupported_policy_is_our_error(facts):
    assert "vLLM" in facts["unsupported"]
    assert facts["gap_after_unsupported"] < 1e-4


@pytest.mark.thorough
def test_adapter_is_served_and_exchanged(facts):
    assert facts["adapter"]["effect"] > 0.05
    assert facts["adapter"]["merged_gap"] < 1e-4
    assert facts["adapter"]["served_gaps"][0] < 1e-4
    assert facts["adapter"]["served_gaps"][1] < 1e-4


@pytest.mark.thorough
def test_openai_engine_with_vllms_own_server(vllm_interpreter, folders, tmp_path, monkeypatch):
    """Greedy play through HTTP with the protocol 'vllm' gives the token ids and states of greedy play here."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    module = ["-m", "vllm.entrypoints.openai.api_server"]
    command = [vllm_interpreter, *module, "--model", folders[0], "--served-model-name", "tiny"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", "--max-model-len", "512"]
    command += ["--enforce-eager", "--generation-config", "vllm", "--block-size", "32"]
    command += ["--kv-cache-memory-bytes", str(2**28)]
    environment = {
        "VLLM_NO_USAGE_STATS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "NO_PROXY": "127.0.0.1",
    }
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, log)
        sampling = SamplingConfig(temperature=0.0, max_response_tokens=12)
        job = RolloutJob(folders[0], "key", FrozenLakeSettings(), AGENT, sampling, 512)
        here = play_shards(LocalPlayer(TorchEngine(num_threads=1, device="cpu")), job, SHARDS)
        options = {"base_url": f"http://127.0.0.1:{port}/v1", "model": "tiny"}
        for protocol in ("vllm", "completions", "chat"):
            engine = OpenAIEngine(**options, protocol=protocol)
            there, usage = take_usage(play_shards(LocalPlayer(engine), job, SHARDS))
            assert usage["requests"] == there.num_rows
            starts = [
                set(zip(*(turns[name].to_pylist() for name in ("trajectory_id", "initial_state_digest")), strict=True))
                for turns in (here, there)
            ]
            assert starts[0] == starts[1]
            if protocol == "vllm":
                assert there["response_ids"].to_pylist() == here["response_ids"].to_pylist()
                assert there["state_digest"].to_pylist() == here["state_digest"].to_pylist()
                assert usage["response_tokens"] == sum(map(len, there["response_ids"].to_pylist()))
        contexts = TeacherContexts(here)
        scored = score_on_server(contexts, load_tokenizer(folders[0]), ServerTeacher(**options))
        expected = LoadedTeacher(folders[0], "key", "float32").score(contexts, 1.0, 4096)
        assert scored.logprobs_N.tolist() == pytest.approx(expected.logprobs_N.tolist(), abs=1e-3)
        assert (scored.is_mode_N == expected.is_mode_N).float().mean() > 0.99
        with pytest.raises(EngineError, match=r"has no model 'tini' .* it has tiny"):
            OpenAIEngine(base_url=f"http://127.0.0.1:{port}/v1", model="tini").load(folders[0], "key")
    finally:
        server.terminate()
        server.wait(30)


def wait_for(url, process, log):
    deadline = time.monotonic() + 180
    while True:
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.3)
