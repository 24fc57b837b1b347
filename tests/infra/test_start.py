"""`infra/images/start` and `infra/slurm/train.sbatch` with stand-ins for the programs that they call."""

import http.server
import importlib.util
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from starpo.ragen.core.allocator import KEEP_FREED_MEMORY

Stubs = Callable[..., tuple[Path, Path]]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Address of a server that responds to every GET with 200, or with 503 if the path ends with /ill."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503 if self.path.endswith("/ill") else 200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def start(root: Path, stubs: Stubs, bare: dict[str, str], tmp_path: Path) -> Callable[..., list[str]]:
    """Run a role; returns the calls of programs and the lines of stderr."""
    say_settings = 'printenv GLIBC_TUNABLES >"$TMPDIR/malloc" || true'
    programs, log = stubs(prefect=say_settings, ray=say_settings, starpo="")
    (programs / "python").symlink_to(sys.executable)

    def run(*arguments: str, code: int = 0, **environment: str) -> list[str]:
        done = subprocess.run(
            [root / "infra/images/start", *arguments],
            env={**bare, "PATH": f"{programs}:{bare['PATH']}", "TMPDIR": str(tmp_path), **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        return [*log.read_text().splitlines(), *done.stderr.splitlines()]

    return run


def test_setup_makes_pool_limit_deployments(start: Callable[..., list[str]], address: str) -> None:
    calls = start("setup", PREFECT_API_URL=f"http://{address}/api", STARPO_STORE="/a/folder")
    assert calls == [
        "prefect --no-prompt work-pool create starpo --type process --overwrite",
        "prefect --no-prompt work-pool create gpu --type process --overwrite",
        "prefect --no-prompt concurrency-limit create gpu 1",
        "prefect --no-prompt deploy --all",
    ]


def test_ray_worker_offers_cpus_alone(start: Callable[..., list[str]], address: str) -> None:
    memory = "--object-store-memory=536870912 --disable-usage-stats"
    assert start("ray-worker", RAY_ADDRESS=address, RAY_CPUS="3") == [
        f"ray start --address={address} {memory} --num-cpus=3 --block"
    ]


def test_worker_joins_ray_before_taking_runs(start: Callable[..., list[str]], address: str) -> None:
    calls = start(
        "worker", STARPO_POOL="ray", RAY_ADDRESS=address, PREFECT_API_URL=f"http://{address}/api", FLOW_RUNS="1"
    )
    assert [call.split()[:2] for call in calls] == [["ray", "start"], ["prefect", "worker"]]
    assert "--num-cpus=0 --num-gpus=0" in calls[0]
    assert "--pool starpo --type process --limit 1" in calls[1]


@pytest.mark.parametrize("role", ["worker", "ray-worker"])
@pytest.mark.parametrize("tunables", [None, "glibc.malloc.hugetlb=0"])
def test_computing_roles_keep_freed_memory(
    start: Callable[..., list[str]], address: str, tmp_path: Path, role: str, tunables: str | None
) -> None:
    given = {} if tunables is None else {"GLIBC_TUNABLES": tunables}
    start(role, RAY_ADDRESS=address, PREFECT_API_URL=f"http://{address}/api", **given)
    assert (tmp_path / "malloc").read_text().strip() == (tunables or KEEP_FREED_MEMORY)


def test_missing_variables_are_named(start: Callable[..., list[str]]) -> None:
    assert "PREFECT_API_URL: names the Prefect server" in start("setup", code=1)[-1]
    assert "RAY_ADDRESS: names the head" in start("ray-worker", code=1)[-1]


RAYLET = "http://127.0.0.1:52365/api/local_raylet_healthz"


@pytest.mark.parametrize(
    ("role", "calls"),
    [
        ("server", ["http://127.0.0.1:4200/api/health"]),
        ("ray-head", [RAYLET]),
        ("ray-worker", [RAYLET]),
        ("worker", ["http://127.0.0.1:8080/health", RAYLET]),
    ],
)
def test_health_is_that_of_the_role(
    start: Callable[..., list[str]], tmp_path: Path, role: str, calls: list[str]
) -> None:
    python = tmp_path / "bin" / "python"
    python.unlink()
    python.write_text(f'#!/usr/bin/env bash\necho "$2" >>{tmp_path}/calls\n[ "$2" != "${{ILL:-}}" ]\n')
    python.chmod(0o755)
    places = {"STARPO_POOL": "ray", "RAY_ADDRESS": "head:6379", "PREFECT_API_URL": "http://server/api"}
    before = start(role, **places)
    assert start("health", **places)[len(before) :] == calls
    for ill in calls:
        start("health", **places, ILL=ill, code=1)


@pytest.mark.parametrize(("where", "code"), [("http://{}/health", 0), ("tcp://{}", 0), ("http://{}/ill", 1), ("x", 1)])
def test_answers(root: Path, address: str, where: str, code: int) -> None:
    done = subprocess.run([sys.executable, root / "infra/images/answers.py", where.format(address)])
    assert done.returncode == code


def test_options_exist_in_prefect_and_ray(root: Path, commands_of_ray: str) -> None:
    text = "".join((root / file).read_text() for file in ("infra/images/start", "infra/slurm/train.sbatch"))
    lines = text.replace("\\\n", " ").splitlines()
    prefect = Path(importlib.util.find_spec("prefect").origin).parent / "cli"
    commands = "".join(file.read_text() for file in prefect.rglob("*.py")) + '"--no-prompt"'  # made from "--prompt"
    for calls, source in ((r"ray start|join_ray|^node|^object_store", commands_of_ray), (r"\bprefect ", commands)):
        called = " ".join(line for line in lines if re.search(calls, line))
        options = set(re.findall(r"(?<![\w-])--[a-z-]+", called))
        assert len(options) > 5
        assert options <= set(re.findall(r'"(--[a-z-]+)"', source))


@pytest.fixture
def sbatch(root: Path, stubs: Stubs, bare: dict[str, str], tmp_path: Path) -> Callable[..., tuple[int, list[str], str]]:
    """Run the batch script in an allocation of two nodes; returns its exit code, calls of programs and stderr."""
    # srun runs the tasks of the step in turn and then waits for SIGTERM, as Ray does; python waits for both tasks
    srun = r"""
while [[ $1 == --* ]]; do shift; done
for SLURM_PROCID in 0 1; do SLURM_PROCID=$SLURM_PROCID "$@"; done
trap 'kill $!; exit 0' TERM
sleep 60 &>/dev/null & wait"""
    programs, log = stubs(
        srun=srun,
        ray="",
        python=f'until [ "$(grep -c "^ray " {tmp_path}/calls)" = 2 ]; do sleep 0.05; done',
        scontrol="printf 'localhost\nother\n'",
        starpo=f'[ "$1" = train ] || exit 0\nenv | grep -E "^(RA|STAR|PREF)" >{tmp_path}/env\nexit ${{TRAIN_CODE:-0}}',
    )
    slurm = {
        "SLURM_JOB_ID": "1234567",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "SLURM_CPUS_PER_TASK": "4",
        "SLURM_SUBMIT_DIR": str(root),
        "STARPO_BIN": str(programs),
        "TMPDIR": str(tmp_path),
    }

    def run(*arguments: str, **environment: str) -> tuple[int, list[str], str]:
        done = subprocess.run(
            [root / "infra/slurm/train.sbatch", *arguments],
            env={**bare, **slurm, "PATH": f"{programs}:{bare['PATH']}", **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, log.read_text().splitlines(), done.stderr

    return run


def test_job_starts_ray_on_all_nodes(
    sbatch: Callable[..., tuple[int, list[str], str]], tmp_path: Path, root: Path
) -> None:
    code, calls, output = sbatch("smoke", "--iterations", "3")
    assert code == 0, output
    head, worker = [call for call in calls if call.startswith("ray ")]
    assert head.startswith("ray start --head --node-ip-address=127.0.0.1 --port=26268 ")
    assert worker.startswith("ray start --address=127.0.0.1:26268 --num-cpus=4 --num-gpus=0 ")
    assert "python infra/slurm/wait_for_ray.py 2" in calls
    assert calls[-2:] == ["starpo train smoke --iterations 3", "starpo down"]
    environment = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert environment["STARPO_POOL"] == "ray"
    assert environment["STARPO_RAY_ACTORS"] == "8"
    assert environment["RAY_ADDRESS"] == "127.0.0.1:26268"
    assert environment["STARPO_STORE"] == str(root / "var/store")
    assert environment["PREFECT_API_URL"] == "http://127.0.0.1:26269/api"
    assert len(environment["RAY_AUTH_TOKEN"]) == 48
    assert not Path(environment["PREFECT_HOME"]).exists()


def test_with_gpus_an_actor_has_one(sbatch: Callable[..., tuple[int, list[str], str]], tmp_path: Path) -> None:
    assert sbatch("smoke", SLURM_GPUS_ON_NODE="2", STARPO_STORE="s3://bucket/runs")[0] == 0
    environment = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert (environment["STARPO_RAY_ACTORS"], environment["STARPO_RAY_ACTOR_GPUS"]) == ("4", "1")
    assert environment["STARPO_STORE"] == "s3://bucket/runs"


def test_failed_run_fails_job_cleanly(sbatch: Callable[..., tuple[int, list[str], str]], tmp_path: Path) -> None:
    code, calls, _ = sbatch("smoke", TRAIN_CODE="1")
    assert (code, calls[-1]) == (1, "starpo down")
    environment = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert not Path(environment["PREFECT_HOME"]).exists()


def test_missing_nodes_are_counted(root: Path, bare: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise ConnectionError")
    done = subprocess.run(
        [sys.executable, root / "infra/slurm/wait_for_ray.py", "2", "0"],
        env={**bare, "RAY_ADDRESS": "127.0.0.1:1", "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "0 of 2 nodes joined the Ray cluster at 127.0.0.1:1" in done.stderr
