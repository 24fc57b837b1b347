"""Programs: what they receive, how they end, and that nothing outlives them."""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.methods.programs import fork_server, process
from starpo.ragen.methods.programs.process import RunningProgram
from tests.processes import has_ended


def run(settings, task=None):
    return RunningProgram(settings, task or {"n": 1}, "http://127.0.0.1:9/v1", "key-1").wait()


def gone(pid: int, within_s: float = 5.0) -> bool:
    stop_at = time.monotonic() + within_s
    while time.monotonic() < stop_at:
        if has_ended(pid):
            return True
        time.sleep(0.01)
    return False


def suspend(one: psutil.Process) -> None:
    """Stop a process, and wait until it is: until then it goes on."""
    one.suspend()
    while one.status() != psutil.STATUS_STOPPED:
        time.sleep(0.001)


def until(path: Path, within_s: float = 60.0) -> str:
    """Wait for a file with something in it."""
    stop_at = time.monotonic() + within_s
    while time.monotonic() < stop_at:
        if path.exists() and path.read_text().endswith("\n"):
            return path.read_text()
        time.sleep(0.01)
    raise AssertionError(f"{path} was not written")


def test_program_gets_task_endpoint_nothing_else(program, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hidden")
    monkeypatch.setenv("WANTED", "seen")
    code = """
        import json, os, sys
        print(json.dumps([json.load(sys.stdin), dict(os.environ), os.getcwd(), sys.argv[1:]]))
    """
    settings = program(code, command=[sys.executable, "agent.py", "at {base_url}", "{model}"], variables=["WANTED"])
    ended = run(settings, {"q": "\u00fc"})
    task, variables, cwd, words = json.loads(ended.output)
    assert (ended.status, ended.detail) == ("done", "")
    assert task == {"q": "\u00fc"} == json.loads(variables["STARPO_TASK"])
    assert words == ["at http://127.0.0.1:9/v1", "policy"]
    assert variables["OPENAI_BASE_URL"] == "http://127.0.0.1:9/v1"
    assert (variables["OPENAI_API_KEY"], variables["WANTED"]) == ("key-1", "seen")
    assert variables["HOME"] == variables["TMPDIR"] == cwd
    assert set(variables) - {"LC_CTYPE"} == {
        *("PATH", "LANG", "HOME", "TMPDIR", "NO_PROXY", "PYTHONPATH", "WANTED", "STARPO_TASK"),
        *("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL"),
    }
    assert not Path(cwd).exists()


@pytest.mark.parametrize(
    ("code", "status", "detail"),
    [
        ("raise ValueError('no luck')", "died", "exit status 1: ValueError: no luck"),
        ("import os; os.kill(os.getpid(), 9)", "died", "signal SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", "died", "signal 40"),
        ("import time; time.sleep(60)", "hung", "still running after 0.5 s (environment.time_limit_s)"),
        ("while True: print('x' * 1000)", "flooded", "more than 5,000 bytes of output (environment.max_output_bytes)"),
        ("print('x' * 6000)", "flooded", "more than 5,000 bytes of output (environment.max_output_bytes)"),
    ],
)
def test_end_of_program_is_reported(program, code, status, detail):
    ended = run(program(code, time_limit_s=0.5 if status == "hung" else 60.0, max_output_bytes=5000))
    assert (ended.status, ended.detail) == (status, detail)


def test_a_task_of_megabytes_arrives(program):
    ended = run(program("import json, sys; print(len(json.load(sys.stdin)['text']))"), {"text": "x" * 3_000_000})
    assert ended.output == "3000000\n"


PLAYED = """
import os, sys, tempfile, time

IMPORTED_BY = os.getpid()
if "OPENAI_API_KEY" in os.environ:
    raise RuntimeError("there is no key yet")


def play(task):
    print("said")
    sys.stdout.flush()
    facts = [os.getpid(), os.getppid(), IMPORTED_BY, os.environ["OPENAI_API_KEY"], tempfile.gettempdir(), os.getcwd()]
    return {"reward": task["n"] / 2, "facts": facts}


def leave(task):
    sys.exit("no more")


def hang(task):
    if os.fork() == 0:
        os.setsid()
    print(os.getpid())
    sys.stdout.flush()
    time.sleep(600)
"""


def test_function_imported_once_called_in_processes(folder, program):
    (folder / "mine.py").write_text(PLAYED)
    settings = program("", command="mine:play")
    running = [RunningProgram(settings, {"n": n}, "", f"key-{n}") for n in range(3)]
    outputs = [one.wait().output for one in running]
    facts = [json.loads(output.splitlines()[-1]) for output in outputs]
    assert outputs[0].startswith("said\n")
    assert [one["reward"] for one in facts] == [0.0, 0.5, 1.0]
    processes, wardens, importers, keys, temporary, folders = zip(*(one["facts"] for one in facts), strict=True)
    assert len({*processes, *wardens, *importers, os.getpid()}) == 8
    assert keys == ("key-0", "key-1", "key-2")
    assert temporary == folders
    assert len(set(folders)) == 3
    psutil.Process(importers[0]).kill()
    assert gone(importers[0])
    assert RunningProgram(settings, {"n": 4}, "", "").wait().status == "done"


@pytest.mark.ci
def test_function_limited_like_command(folder, program):
    (folder / "mine.py").write_text(PLAYED)
    hung = run(program("", command="mine:hang", time_limit_s=5.0))
    assert hung.status == "hung"
    assert len(hung.output.split()) == 2
    assert all(gone(int(pid)) for pid in hung.output.split())
    assert run(program("", command="mine:leave")).detail == "exit status 1: no more"
    assert run(program("", command="mine:absent")).detail.startswith("exit status 1: AttributeError: module 'mine'")


TREE = """
    import os, subprocess, sys, time
    sleepers = [
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]),
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True, env={}),
    ]
    orphan = os.fork()
    if orphan == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        open(os.path.join(sys.argv[1], "orphan"), "w").write(f"{os.getpid()}\\n")
        time.sleep(600)
    os.waitpid(orphan, 0)
    while not os.path.exists(os.path.join(sys.argv[1], "orphan")):
        time.sleep(0.01)
    pids = [*(sleeper.pid for sleeper in sleepers), os.getpid()]
    open(os.path.join(sys.argv[1], "pids"), "w").write(" ".join(map(str, pids)) + "\\n")
"""


def pids_in(folder: Path) -> list[int]:
    return [int(pid) for pid in (until(folder / "pids") + until(folder / "orphan")).split()]


def test_children_in_any_session_end(folder, program):
    ended = run(program(TREE, command=[sys.executable, "agent.py", str(folder)]))
    assert ended.status == "done"
    assert all(gone(pid) for pid in pids_in(folder))


def test_kill_ends_processes_and_folder(folder, program):
    settings = program(TREE + "    time.sleep(600)\n", command=[sys.executable, "agent.py", str(folder)])
    running = RunningProgram(settings, {}, "", "key-2")
    pids = pids_in(folder)
    scratch = psutil.Process(pids[2]).cwd()
    assert running.poll() is None
    running.kill()
    running.kill()
    assert all(gone(pid) for pid in pids)
    assert not Path(scratch).exists()
    assert running.poll().status == "died"


@pytest.mark.ci
def test_nothing_outlives_killed_parent(folder, program):
    program(TREE + "    time.sleep(600)\n")
    parent = f"""
        import sys, time
        from starpo.ragen.methods.programs.process import RunningProgram
        from starpo.ragen.methods.programs.settings import ProgramSettings
        settings = ProgramSettings(command=[sys.executable, "agent.py", {str(folder)!r}], tasks="tasks.jsonl")
        running = RunningProgram(settings, {{}}, "", "key-3")
        time.sleep(600)
    """
    path = os.pathsep.join(sys.path)
    started = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(parent)], env={**os.environ, "PYTHONPATH": path}, cwd=folder
    )
    try:
        pids = pids_in(folder)
        scratch = psutil.Process(pids[2]).cwd()
    finally:
        started.send_signal(signal.SIGKILL)
        started.wait()
    assert all(gone(pid) for pid in pids)
    stop_at = time.monotonic() + 5
    while Path(scratch).exists() and time.monotonic() < stop_at:
        time.sleep(0.01)
    assert not Path(scratch).exists()


def test_program_killing_warden_has_died(folder, program):
    code = """
        import os, signal, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        open(sys.argv[1], "w").write(f"{child.pid} {os.getpid()}\\n")
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    """
    ended = run(program(code, command=[sys.executable, "agent.py", str(folder / "pids")]))
    assert (ended.status, ended.detail) == ("died", "its warden was killed")
    assert all(gone(int(pid)) for pid in until(folder / "pids").split())


@pytest.mark.ci
def test_program_stopping_warden_ends_in_time(folder, program, monkeypatch):
    monkeypatch.setattr(process, "LATE_S", 1.0)
    code = """
        import os, signal, sys, time
        open(sys.argv[1], "w").write(f"{os.getpid()} {os.getppid()}\\n")
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(600)
    """
    settings = program(code, command=[sys.executable, "agent.py", str(folder / "pids")], time_limit_s=2.0)
    ended = run(settings)
    assert (ended.status, ended.detail) == ("died", "its warden was killed")
    assert all(gone(int(pid)) for pid in until(folder / "pids").split())


def server_of(settings) -> psutil.Process:
    """The process that forks the wardens of these programs."""
    run(settings)
    return psutil.Process(list(fork_server._SERVERS.values())[-1]._process.pid)


@pytest.fixture
def temporary(tmp_path, monkeypatch) -> Path:
    """The folder in which scratch folders are made, with the mode that such a folder has."""
    made = tmp_path / "temporary"
    made.mkdir()
    made.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


@pytest.mark.parametrize(
    "code",
    [
        "pass",
        "import time; time.sleep(600)",  # is killed
        "import os; os.rmdir(os.getcwd())",
        "import os; os.rmdir(os.getcwd()); os.symlink(sys.argv[1], os.environ['TMPDIR'])",
        "import os; os.rmdir(os.getcwd()); open(os.environ['TMPDIR'], 'w')",
        "import os; os.symlink(sys.argv[1], 'link'); os.mkdir('locked'); open('locked/file', 'w'); os.chmod('.', 0)",
    ],
    ids=["kept", "killed", "gone", "link", "file", "locked"],
)
def test_own_folder_removed_others_untouched(folder, program, temporary, code):
    outside = folder / "outside"
    outside.mkdir(mode=0o751)
    (outside / "kept").write_text("kept")
    settings = program(f"import sys\n{code}\n", command=[sys.executable, "agent.py", str(outside)])
    running = RunningProgram(settings, {}, "", "key-4")
    if "sleep" in code:
        time.sleep(0.3)
        running.kill()
    running.wait()
    assert list(temporary.iterdir()) == []
    assert [stat.S_IMODE(path.stat().st_mode) for path in (temporary, outside)] == [0o1777, 0o751]
    assert (outside / "kept").read_text() == "kept"


@pytest.mark.ci
def test_nested_folders_removed_at_any_depth(program, temporary):
    code = """
        import os
        for number in range(1200):
            os.mkdir("a" * 200)
            open("file", "w").close()
            os.chdir("a" * 200)
        os.chmod("..", 0)
    """
    ended = run(program(code))
    assert (ended.status, ended.detail) == ("done", "")
    assert list(temporary.iterdir()) == []


def test_stopped_fork_server_is_replaced(program, monkeypatch):
    monkeypatch.setattr(process, "STUCK_S", 0.1)
    settings = program("print('played')")
    stopped = server_of(settings)
    suspend(stopped)
    running = [RunningProgram(settings, {}, "", f"key-{n}") for n in range(3)]
    assert [one.wait().output for one in running] == ["played\n"] * 3
    assert gone(stopped.pid)


def test_kill_under_stopped_fork_server_quick(program):
    settings = program("import time; time.sleep(600)", time_limit_s=600)
    stopped = server_of(program("pass"))
    suspend(stopped)
    running = RunningProgram(settings, {}, "", "key-5")
    started = time.monotonic()
    running.kill()
    assert running.poll().detail == "it was ended from outside"
    assert gone(stopped.pid)
    assert time.monotonic() - started < 5


def test_programs_continue_without_fork_server(folder, program):
    code = """
        import os, sys, time
        open(os.path.join(sys.argv[1], os.environ["OPENAI_API_KEY"]), "w").write("\\n")
        while not os.path.exists(os.path.join(sys.argv[1], "go")):
            time.sleep(0.01)
        print("played")
    """
    settings = program(code, command=[sys.executable, "agent.py", str(folder)])
    server = server_of(program("pass"))
    program(code)
    running = [RunningProgram(settings, {}, "", f"key-{n}") for n in range(3)]
    for n in range(3):
        until(folder / f"key-{n}")
    server.kill()
    later = RunningProgram(settings, {}, "", "key-3")
    (folder / "go").write_text("")
    assert [one.wait().output for one in (*running, later)] == ["played\n"] * 4


@pytest.mark.ci
def test_unstarted_program_given_up_at_limit(folder, program, monkeypatch):
    monkeypatch.setattr(process, "LATE_S", 0.5)
    (folder / "slow.py").write_text("import time\ntime.sleep(600)\n\ndef play(task): ...\n")
    settings = program("", command="slow:play", time_limit_s=0.5)
    running = [RunningProgram(settings, {}, "", f"key-{n}") for n in range(2)]
    for ended in (one.wait() for one in running):
        assert ended.status == "hung"
        assert ended.detail.startswith("not started within 1 s (environment.time_limit_s + 0.5): is 'slow:play' slow")


def test_module_ending_process_is_named(folder, program):
    (folder / "fatal.py").write_text("import os\nos._exit(3)\n")
    ended = run(program("", command="fatal:play"))
    assert (ended.status, "fatal:play" in ended.detail) == ("died", True)


FORGED = """
    import os, signal, sys
    for name in os.listdir(f"/proc/{os.getppid()}/fd"):
        path = f"/proc/{os.getppid()}/fd/{name}"
        if os.path.isfile(path):
            open(path, "w").write(sys.argv[1] * int(sys.argv[2]))
    os.kill(os.getppid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("report", "times"),
    [
        ('{"status": "great"}', 1),
        ('{"status": "done"}', 1),
        ('{"status": "done", "code": "0", "output": [], "errors": null}', 1),
        ('{"status": ["done"], "code": 0, "output": "", "errors": ""}', 1),
        ("[]", 1),
        ("3", 1),
        ("NaN", 1),
        ("[", 100_000),
        ("9", 5_000_000),
    ],
)
def test_a_forged_report_is_none(program, report, times):
    ended = run(program(FORGED, command=[sys.executable, "agent.py", report, str(times)]))
    assert (ended.status, ended.detail) == ("died", "its warden was killed")


def test_surrogate_and_null_byte_end_nothing(program):
    code = "import json, os, sys; print(json.loads(os.environ['STARPO_TASK']) == json.load(sys.stdin))"
    assert run(program(code), {"text": "\ud800"}).output == "True\n"
    ended = run(program(code, command=[sys.executable, "agent.py", "a\0b"]))
    assert (ended.status, "cannot be started: embedded null byte" in ended.detail) == ("died", True)
    with pytest.raises(EnvironmentFault, match="is not found here"):
        run(program(code, command=["a\0b"]))
