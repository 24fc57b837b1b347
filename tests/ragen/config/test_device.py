"""The device as a value: what manifests record of it, what differs from another, and which kernels it allows."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.config import device as module
from starpo.ragen.config.device import Device
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.store.artifacts.provenance import collect

H200 = Device("cuda", "NVIDIA H200", "580.95.05", "13.0", "13.1.0", num_gpus=2)
DRIVER = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs@u22)
GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1)
"""


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine that claims to have two H200."""
    (tmp_path / "version").write_text(DRIVER)
    monkeypatch.setattr(module, "_DRIVER", tmp_path / "version")
    monkeypatch.setattr(module, "_cublas_version", lambda cuda: "13.1.0")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda.tunable, "enable", lambda _: None)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    module._device.cache_clear()
    yield
    module._device.cache_clear()


@pytest.mark.usefixtures("gpu")
def test_gpu_repeats_and_is_in_manifest() -> None:
    assert (Device.here(), Device.here().is_repeatable) == (H200, True)
    provenance = collect()
    expected = {"gpu": "NVIDIA H200", "gpus": 2, "driver": "580.95.05", "cuda": "13.0", "cublas": "13.1.0"}
    assert expected.items() <= provenance["hardware"].items()
    assert Device.of(provenance) == H200
    assert str(H200) == "an NVIDIA H200 (driver 580.95.05, CUDA 13.0, cuBLAS 13.1.0)"


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("has_driver", [True, False])
def test_no_gpu_without_driver(monkeypatch: pytest.MonkeyPatch, has_driver: bool) -> None:
    monkeypatch.setattr(module, "_has_driver", lambda: has_driver)
    assert Device.has_gpu() == has_driver


@pytest.mark.usefixtures("gpu")
def test_workers_inherit_repeatable_gpu_workspace() -> None:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":16:8"
    TorchLearner(UpdateConfig())
    command = [sys.executable, "-c", "import os; print(os.environ['CUBLAS_WORKSPACE_CONFIG'])"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == ":4096:8\n"


@pytest.mark.usefixtures("gpu")
def test_fast_unrepeatable_mode_is_marked(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("STARPO_SHOULD_REPEAT", "false")
    marks = TorchLearner(UpdateConfig()).is_deterministic, TorchEngine().is_deterministic
    assert marks == (False, False)
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    assert caplog.text.count("`starpo verify` cannot show it, and a checkpoint that is dropped cannot be derived") == 1


def test_manifest_without_gpu_means_cpu() -> None:
    for provenance in ({}, {"hardware": {"cpu": "EPYC"}}, {"hardware": "?"}):
        assert Device.of(provenance) == Device()
        assert Device.of(provenance).is_unlike(H200)
    assert not H200.is_unlike(replace(H200, driver="570.0"))
    assert H200.is_unlike(replace(H200, name="NVIDIA H100"))


@pytest.mark.parametrize(
    ("device", "is_strict"), [(H200, True), (replace(H200, is_repeatable=False), False), (Device(), False)]
)
def test_micro_batches_use_deterministic_kernels(device: Device, is_strict: bool) -> None:
    with MicroBatchRunner(device, 1, "float32").alone():
        assert torch.are_deterministic_algorithms_enabled() == is_strict
    assert not torch.are_deterministic_algorithms_enabled()


def test_nondeterministic_operation_named_with_remedy() -> None:
    def alerted() -> None:
        with H200.repeating():
            raise RuntimeError("histc_cuda does not have a deterministic implementation, but you set ...")

    with pytest.raises(LearnerError, match=r"(?s)NVIDIA H200: histc_cuda .*STARPO_SHOULD_REPEAT=0"):
        alerted()
    assert not torch.are_deterministic_algorithms_enabled()
