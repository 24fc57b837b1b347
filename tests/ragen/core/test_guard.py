"""Guarded calls: what they change in the process is put back."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from starpo.flows.presets import preset
from starpo.ragen.core import guard
from starpo.ragen.core.errors import CallLimitError, ConfigError
from starpo.ragen.core.guard import Limit, guarded, interrupt_overdue_calls, overdue_call, tell_of_slow_calls
from starpo.ragen.core.lookup import resolve


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


def test_file_modes_independent_of_environment(tmp_path: Path) -> None:
    before = os.umask(0o022)
    os.umask(before)
    with guarded():
        os.umask(0o777)
    (tmp_path / "file").write_text("")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~before


LIMIT = Limit(0.3, "STARPO_MINE_S")


def spin() -> None:
    while True:
        pass


@pytest.mark.timeout(30)
@pytest.mark.parametrize("hang", [lambda: time.sleep(1e6), spin], ids=["waiting", "computing"])
def test_main_thread_call_ends_at_limit(hang) -> None:
    before = signal.getsignal(signal.SIGALRM)
    message = r"filter 'mine' took longer than 0.3 s. Mend it, or raise STARPO_MINE_S"
    with pytest.raises(CallLimitError, match=message), guarded("filter 'mine'", LIMIT):
        hang()
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.timeout(30)
def test_swallowed_interruption_is_repeated(monkeypatch) -> None:
    monkeypatch.setattr(guard, "_AGAIN_S", 0.1)

    def hang() -> None:
        with suppress(BaseException):
            time.sleep(1e6)
        time.sleep(1e6)

    with pytest.raises(CallLimitError):
        guarded("filter 'mine'", LIMIT)(hang)()


@pytest.mark.timeout(30)
def test_other_thread_call_ends_at_limit() -> None:
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(guarded("surrogate 'mine'", LIMIT)(spin))
        while (call := overdue_call()) is None:
            time.sleep(0.01)
        assert (call.name, call.limit) == ("surrogate 'mine'", LIMIT)
        interrupt_overdue_calls()
        with pytest.raises(CallLimitError, match=r"surrogate 'mine' took longer than 0.3 s"):
            hanging.result()
    assert overdue_call() is None


@pytest.mark.ci
@pytest.mark.timeout(30)
def test_slow_call_is_named_meanwhile(monkeypatch, caplog) -> None:
    monkeypatch.setattr(guard, "SLOW_S", 0.2)
    monkeypatch.setattr(guard, "_AGAIN_S", 0.1)
    heard: list[str] = []
    stop = tell_of_slow_calls(heard.append)
    with guarded("reward component 'mine'", Limit(60, "STARPO_MINE_S")), guarded("within", LIMIT):
        stop_at = time.monotonic() + 20
        while not heard and time.monotonic() < stop_at:
            time.sleep(0.01)
    stop()
    (text,) = caplog.messages
    assert heard == [text, ""]
    assert re.fullmatch(
        r"reward component 'mine' has not returned for \d+ s; its limit is 60 s \(STARPO_MINE_S\)", text
    )


@pytest.mark.ci
@pytest.mark.timeout(30)
def test_slow_import_is_named_meanwhile(monkeypatch, caplog, tmp_path: Path) -> None:
    monkeypatch.setattr(guard, "SLOW_S", 0.1)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine_slow.py").write_text("import time\ntime.sleep(1.5)\nX = 1\n")
    assert resolve("mine_slow:X") == 1
    assert "the import of module 'mine_slow' has not returned for" in caplog.text


@pytest.mark.ci
@pytest.mark.timeout(30)
def test_hanging_import_ends_at_limit(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STARPO_PLUGIN_S", "0.3")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine_endless.py").write_text("import time\ntime.sleep(1e6)\n")
    message = r"the import of module 'mine_endless' took longer than 0.3 s. Mend it, or raise STARPO_PLUGIN_S"
    with pytest.raises(CallLimitError, match=message):
        resolve("mine_endless:X")
    with pytest.raises(ConfigError, match=message):
        preset("smoke", {"filter.strategy": "mine_endless:X"})


@pytest.mark.ci
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
