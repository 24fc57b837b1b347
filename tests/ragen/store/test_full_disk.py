"""A full disk or a file-size limit while an artifact is written: where, how much, what to do; the task is retried."""

import errno
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from prefect.states import Failed
from safetensors.torch import save_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from starpo.flows.stage_task import is_io_failure
from starpo.ragen.core.errors import StoreError
from starpo.ragen.learning.learners.models import checkpoint
from starpo.ragen.learning.learners.models.checkpoint import Checkpoint, save_checkpoint
from starpo.ragen.store import Store

SIZE_BYTES = 2 * 2**20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """File system of 2 MiB, which only root can mount."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(place)], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def policy(hidden_size: int) -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=512, hidden_size=hidden_size, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, intermediate_size=hidden_size,
        )
    )  # fmt: skip


def test_disk_full_error_is_retried(small_disk: Path) -> None:
    with (
        pytest.raises(StoreError, match=r"No space left on device") as refused,
        Store(str(small_disk / "store")).new_folder() as folder,
    ):
        save_file({"weights": torch.zeros(2 * SIZE_BYTES // 4)}, folder / "model.safetensors")
    message = str(refused.value)
    assert message.startswith(f"cannot write {small_disk}/store/tmp/")
    assert " MB are left: free some space" in message
    assert "Nothing was lost" in message
    assert is_io_failure(None, None, Failed(data=refused.value))  # type: ignore[arg-type]


def test_checkpoint_too_large_fails_before_writing(small_disk: Path) -> None:
    model = policy(512)  # 512 x 512 float32 embeddings and an equal output layer: 2 MiB; plus its hidden layer
    needed = sum(tensor.nbytes for tensor in model.state_dict().values())
    assert needed > SIZE_BYTES
    with (
        pytest.raises(StoreError, match=rf"a checkpoint needs at least {needed / 1e6:.1f} MB, but 2.1 MB are free"),
        Store(str(small_disk / "store")).new_folder() as folder,
    ):
        save_checkpoint(Checkpoint(model), str(folder))
    assert list((small_disk / "store" / "tmp").iterdir()) == []


def test_disk_filling_during_checkpoint_fails(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_expect_room", lambda *_: None)  # there was room, and another process took it
    moments = {"adamw/exp_avg/weights": torch.zeros(SIZE_BYTES // 4)}
    trained = Checkpoint(policy(32), optimiser_states={"policy": moments})
    with (
        pytest.raises(StoreError, match=r"(?s)No space left on device.* MB are left: free some space") as refused,
        Store(str(small_disk / "store")).new_folder() as folder,
    ):
        save_checkpoint(trained, str(folder))
    assert (refused.value.args[0]).startswith(f"cannot write {small_disk}/store/tmp/")
    assert list((small_disk / "store" / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    "error", [FileNotFoundError(errno.ENOENT, "No such file", "/data/goods.json"), ConnectionRefusedError(111, "no")]
)
def test_errors_of_folder_maker_pass_unchanged(store: Store, error: OSError) -> None:
    """For example, an environment that reads its own file during the warm start."""
    with pytest.raises(type(error)) as met, store.new_folder():
        raise error
    assert met.value is error


@pytest.mark.ci
def test_what_safetensors_says_is_understood(tmp_path: Path) -> None:
    """A limit on the file size (EFBIG) needs no root; it is set in a subprocess, because it persists."""
    code = (
        "import resource, sys, torch\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({2**16}, {resource.RLIM_INFINITY}))\n"
        "from safetensors.torch import save_file\n"
        "from starpo.ragen.core.errors import StoreError\n"
        "from starpo.ragen.store import Store\n"
        "try:\n"
        "    with Store(sys.argv[1]).new_folder() as folder:\n"
        "        save_file({'weights': torch.zeros(2**16)}, folder / 'model.safetensors')\n"
        "except StoreError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot write {tmp_path}/tmp/"), done.stdout + done.stderr
    assert f"[Errno {errno.EFBIG}] File too large" in done.stdout
