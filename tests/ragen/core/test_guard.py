"""Guarded calls: what they change in the process is put back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from starpo.ragen.core.guard import guarded, longest_call_s


@pytest.mark.parametrize(
    ("read", "change"),
    [
        (torch.get_default_dtype, lambda: torch.set_default_dtype(torch.float64)),
        (torch.is_grad_enabled, lambda: torch.set_grad_enabled(False)),
        (torch.get_num_threads, lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
        (torch.get_float32_matmul_precision, lambda: torch.set_float32_matmul_precision("medium")),
        (torch.get_deterministic_debug_mode, lambda: torch.set_deterministic_debug_mode("warn")),
        (os.getcwd, lambda: os.chdir("/")),
    ],
    ids=["dtype", "gradients", "threads", "precision", "determinism", "folder"],
)
@pytest.mark.parametrize("fails", [False, True])
def test_settings_are_put_back(read, change, fails):
    before = read()
    try:
        with guarded():
            change()
            assert read() != before
            if fails:
                raise ValueError
    except ValueError:
        assert fails
    assert read() == before


def test_the_modes_of_files_do_not_depend_on_an_environment(tmp_path: Path) -> None:
    before = os.umask(0o022)
    os.umask(before)
    with guarded():
        os.umask(0o777)
    (tmp_path / "file").write_text("")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~before


def test_the_longest_call_in_progress_is_known() -> None:
    assert longest_call_s() == 0.0
    with guarded(is_timed=True):
        assert 0.0 < longest_call_s() < 10.0
    with guarded():
        assert longest_call_s() == 0.0
    assert longest_call_s() == 0.0


def test_importing_torch_first_changes_no_settings(tmp_path: Path) -> None:
    (tmp_path / "mine_first.py").write_text(
        "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_grad_enabled(False)\nX = 1\n"
    )
    code = (
        "import sys; from starpo.ragen.core.lookup import resolve; assert 'torch' not in sys.modules; "
        "resolve('mine_first:X'); import torch; print(torch.get_default_dtype(), torch.is_grad_enabled())"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["torch.float32", "True"]
