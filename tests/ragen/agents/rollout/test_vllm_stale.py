"""An engine that keeps the first adapter for ever is stopped by the probe at the first update."""

import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from starpo.ragen.agents.rollout.vllm.engine import VLLMEngine
from starpo.ragen.agents.rollout.vllm.probe import Probe, ProbeReference, check_moved
from starpo.ragen.config.update import LoraConfig, OptimiserConfig, UpdateConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from tests.ragen.learning.learners.conftest import CONTEXT, policy_folder, random_trajectory  # noqa: F401

CONFIG = UpdateConfig(
    advantage="grpo", num_minibatches=1, lora=LoraConfig(rank=4, alpha=8), optimiser=OptimiserConfig(learning_rate=1e-3)
)


class FakeVLLM:
    """Scores prompts as vLLM would, by the adapter that it was given last, or for ever by the first."""

    def __init__(self, *, is_stale: bool) -> None:
        self.model_config = SimpleNamespace(max_model_len=512)
        self._is_stale, self._folder, self._requests = is_stale, "", []

    def add_lora(self, adapter: SimpleNamespace) -> None:
        if not (self._folder and self._is_stale):
            self._folder = adapter.path

    def add_request(self, name: str, prompt: dict, params: object, lora_request: object) -> None:
        self._requests.append((name, prompt["prompt_token_ids"]))

    def step(self) -> list[SimpleNamespace]:
        name, ids = self._requests.pop()
        logprobs = ProbeReference().logprobs(self._folder, Probe(ids))
        scored = [{token: SimpleNamespace(logprob=value)} for token, value in zip(ids[1:], logprobs, strict=True)]
        return [SimpleNamespace(finished=True, request_id=name, prompt_logprobs=[None, *scored])]

    def __getattr__(self, name: str) -> object:
        return lambda *args, **kwargs: None  # loading the base's weights, removing an adapter, resetting caches


@pytest.fixture(scope="module")
def adapters(policy_folder: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:  # noqa: F811
    """Folders of a run's policy before its first update and after it, of one base."""
    folders = [str(tmp_path_factory.mktemp(name)) for name in ("first", "second")]
    learner = TorchLearner(CONFIG, num_threads=1)
    learner.load(policy_folder, "start", None)
    learner.save(folders[0], "first")
    learner.update([random_trajectory(number) for number in range(4)], CONTEXT)
    learner.save(folders[1], "second")
    for folder in folders:  # as a store lays them out: the base's weights beside the adapter
        shutil.copy(Path(policy_folder) / "model.safetensors", folder)
    return folders


def engine(monkeypatch: pytest.MonkeyPatch, *, is_stale: bool, **options: object) -> VLLMEngine:
    """An engine whose vLLM is the fake."""
    modules = {name: ModuleType(name) for name in ("vllm", "vllm.lora", "vllm.lora.request")}
    modules["vllm"].SamplingParams = SimpleNamespace
    modules["vllm.lora.request"].LoRARequest = lambda name, number, path: SimpleNamespace(lora_int_id=number, path=path)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    engine = VLLMEngine(max_lora_rank=8, **options)
    monkeypatch.setattr(engine, "_start", lambda folder: FakeVLLM(is_stale=is_stale))
    return engine


@pytest.mark.parametrize("options", [{"dtype": "float32"}, {"dtype": "bfloat16"}])
def test_first_adapter_kept_is_found(adapters: list[str], monkeypatch: pytest.MonkeyPatch, options: dict) -> None:
    """With the tolerance of bfloat16 too, within which the first update moves the policy."""
    stale, healthy = (engine(monkeypatch, is_stale=is_stale, **options) for is_stale in (True, False))
    for each in (stale, healthy):
        each.load(adapters[0], "first")
    healthy.load(adapters[1], "second")
    with pytest.raises(EngineError, match=r"'second' the engine gives a fixed text .* so the run stops"):
        stale.load(adapters[1], "second")
    with pytest.raises(EngineError, match="no checkpoint is loaded"):
        stale.session(None, [])


def test_bfloat16_tolerance_alone_would_pass(adapters: list[str]) -> None:
    """What `check_moved` is for: the first update moves the text by less than 0.08 nats."""
    probe = Probe.of(adapters[0], 511)
    first, second = (ProbeReference().logprobs(str(Path(folder)), probe) for folder in adapters)
    assert 1e-4 < max(abs(a - b) for a, b in zip(first, second, strict=True)) < 0.08


def test_unchanged_policy_may_score_the_same() -> None:
    check_moved(([-1.0, -2.0], [-1.0, -2.0]), None, "key")
    check_moved(([-1.0, -2.0], [-1.0, -2.00001]), ([-1.0, -2.0], [-1.0, -2.0]), "key")
    check_moved(([-1.0, -2.1], [-1.0, -2.1]), ([-1.0, -2.0], [-1.0, -2.0]), "key")
