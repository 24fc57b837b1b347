"""A real S3 server on this machine: Ceph's gateway, with one monitor and one in-memory object store, on loopback.

    python infra/s3/ceph.py install [--folder var/ceph]     unpack Debian's packages into the folder; no root needed
    python infra/s3/ceph.py start [--port N]                start it and print the variables that clients need
    python infra/s3/ceph.py stop                            stop it and delete all stored objects

For tests and experiments: one replica, in memory, fixed credentials. `start` uses the Ceph installed in the folder, or
else the machine's own. Several servers can run, each with its own folder `--run`. Needs only Python's standard library.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

PACKAGES = ("radosgw", "ceph-mon", "ceph-osd", "ceph-common")
ACCESS_KEY, SECRET_KEY = "starpo-local-access", "starpo-local-secret"
START_S = 120
"""Startup timeout of each component, and timeout of each command, in seconds."""

_LIBRARIES = "usr/lib/x86_64-linux-gnu"


class CephError(RuntimeError):
    """The server cannot be installed or started."""


class Ceph:
    """A server: its programs in one folder, its state in another (with a short path, as it holds Unix sockets)."""

    def __init__(self, folder: Path, run: Path | None = None) -> None:
        self.folder = folder.absolute()
        self.run = (run or folder / "run").absolute()
        unpacked = self.folder / "root"
        self.root = unpacked if (unpacked / "usr/bin/radosgw").exists() else Path("/")

    @property
    def is_installed(self) -> bool:
        """Whether Ceph is installed, in the folder or on the machine."""
        return (self.root / "usr/bin/radosgw").exists() and (self.root / "usr/bin/ceph-mon").exists()

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables that clients need."""
        return json.loads((self.run / "client.json").read_text())

    def install(self) -> None:
        """Download and unpack Debian's packages, with the dependencies that this machine lacks.

        Raises:
            CephError: If there is no apt-get, or a download or unpacking fails.
        """
        if not shutil.which("apt-get"):
            raise CephError("apt-get is needed to download Ceph; install radosgw, ceph-mon, ceph-osd and ceph-common")
        lists, archives = self.folder / "lists", self.folder / "archives"
        for made in (lists / "partial", archives / "partial"):
            made.mkdir(parents=True, exist_ok=True)
        apt = ["apt-get", "-q", "-y", "-o", "Debug::NoLocking=true", "-o", "APT::Sandbox::User="]
        apt += ["-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={self.folder}"]
        apt += ["-o", f"Dir::Cache::archives={archives}"]
        _quietly([*apt, "update"])
        _quietly([*apt, "install", "--no-install-recommends", "--download-only", *PACKAGES])
        root = self.folder / "root.part"
        shutil.rmtree(root, ignore_errors=True)
        for package in sorted(archives.glob("*.deb")):
            _quietly(["dpkg", "-x", str(package), str(root)])
        shutil.rmtree(self.folder / "root", ignore_errors=True)
        root.rename(self.folder / "root")
        for left in (lists, archives):
            shutil.rmtree(left)

    def start(self, port: int | None = None) -> None:
        """Start monitor, object store and gateway, and create the user.

        Raises:
            CephError: If Ceph is not installed, is already running, or does not come up; what was started is stopped.
        """
        if not self.is_installed:
            raise CephError(f"there is no Ceph in {self.folder} and none on this machine: run `install` first")
        if (self.run / "ceph.conf").exists():
            raise CephError(f"the server in {self.run} runs, or was killed: run `stop` first")
        gateway, monitor = port or _free_port(), _free_port()
        for made in ("mon", "osd"):
            (self.run / made).mkdir(parents=True)
        try:
            self._configure(monitor, gateway)
            self._start_monitor(monitor)
            self._start_object_store()
            self._start_gateway(gateway)
        except BaseException:
            self.stop(keep_logs=True)
            raise

    def stop(self, *, keep_logs: bool = False) -> None:
        """Stop the processes that `start` launched, and delete what they stored."""
        for file in sorted(self.run.glob("*.pid"), reverse=True):  # gateway, then object store, then monitor
            process, name = int(file.read_text()), file.stem.partition("-")[2]
            if name in _command(process):
                os.kill(process, signal.SIGKILL)  # nothing is persistent, so nothing can be lost
                _wait(lambda process=process: not _command(process), f"{name} to end")
            file.unlink()
        if keep_logs:
            failed = self.run.with_name(f"{self.run.name}-failed")
            shutil.rmtree(failed, ignore_errors=True)
            self.run.rename(failed)
        else:
            shutil.rmtree(self.run, ignore_errors=True)

    def _configure(self, monitor: int, gateway: int) -> None:
        libraries = self.root / _LIBRARIES
        (self.run / "ceph.conf").write_text(f"""
[global]
fsid = {uuid.uuid4()}
mon host = v2:127.0.0.1:{monitor}
public network = 127.0.0.0/8
keyring = {self.run}/keyring
log file = {self.run}/$name.log
admin socket = {self.run}/$name.asok
pid file =
run dir = {self.run}
crash dir = {self.run}
osd class dir = {libraries}/rados-classes
plugin dir = {libraries}/ceph
erasure code dir = {libraries}/ceph/erasure-code
osd crush chooseleaf type = 0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon allow pool delete = true
mon data avail crit = -1
mon warn on pool no redundancy = false
ms bind ipv4 = true
ms bind ipv6 = false
[mon]
mon data = {self.run}/mon
mon initial members = a
[osd]
osd data = {self.run}/osd
osd objectstore = memstore
memstore device bytes = {4 * 2**30}
osd max backfills = 1
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{gateway} tcp_nodelay=1
rgw thread pool size = 32
rgw enable usage log = false
rgw enable gc threads = false
rgw enable lc threads = false
rgw run sync thread = false
""")
        keyring = self.run / "keyring"
        everything = {"mon": "allow *", "osd": "allow *", "mgr": "allow *", "mds": "allow *"}
        for name, caps in {
            "mon.": {"mon": "allow *"},
            "client.admin": everything,
            "osd.0": {"mon": "allow profile osd", "osd": "allow *"},
            "client.rgw": {"mon": "allow rw", "osd": "allow rwx"},
        }.items():
            asked = [argument for service, cap in caps.items() for argument in ("--cap", service, cap)]
            create = [] if keyring.exists() else ["--create-keyring"]
            self._call("ceph-authtool", *create, str(keyring), "--gen-key", "-n", name, *asked)

    def _start_monitor(self, port: int) -> None:
        monmap, keyring = str(self.run / "monmap"), str(self.run / "keyring")
        fsid = next(line.split()[-1] for line in (self.run / "ceph.conf").read_text().splitlines() if "fsid" in line)
        address = f"[v2:127.0.0.1:{port}]"
        self._call("monmaptool", "--create", "--fsid", fsid, "--addv", "a", address, "--clobber", monmap)
        self._call("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        self._launch("1-ceph-mon", lambda: self._ask("quorum_status"), "ceph-mon", "-i", "a", "-f")

    def _start_object_store(self) -> None:
        osd = str(uuid.uuid4())
        self._call("ceph", "osd", "new", osd, "0")
        self._call("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self._launch("2-ceph-osd", lambda: self._ask("osd", "stat").get("num_up_osds"), "ceph-osd", "-i", "0", "-f")

    def _start_gateway(self, port: int) -> None:
        endpoint = f"http://127.0.0.1:{port}"
        self._launch("3-radosgw", lambda: _answers(endpoint), "radosgw", "-n", "client.rgw", "-f")
        user = ("--uid=starpo", "--display-name=starpo", f"--access-key={ACCESS_KEY}", f"--secret-key={SECRET_KEY}")
        self._call("radosgw-admin", "-n", "client.rgw", "user", "create", *user)
        variables = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }
        (self.run / "client.json").write_text(json.dumps(variables, indent=2))

    def _ask(self, *command: str) -> dict[str, object]:
        try:
            return json.loads(self._call("ceph", "--connect-timeout", "3", *command, "--format", "json"))
        except (CephError, ValueError):
            return {}

    def _call(self, program: str, *arguments: str) -> str:
        line, what = self._line(program, *arguments), f"{program} {' '.join(arguments)}"
        try:
            done = subprocess.run(line, env=self._environment(), capture_output=True, text=True, timeout=START_S)
        except subprocess.TimeoutExpired as error:
            said = (error.stderr or b"").decode(errors="replace").strip()[-2000:]
            raise CephError(f"{what} did not end within {START_S} s: {said}") from error
        if done.returncode:
            raise CephError(f"{what} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def _launch(self, name: str, is_up: Callable[[], object], program: str, *arguments: str) -> None:
        """Start a component and wait until it is up."""
        printed = self.run / f"{name}.out"
        with printed.open("w") as output:
            process = subprocess.Popen(
                self._line(program, *arguments),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (self.run / f"{name}.pid").write_text(str(process.pid))
        try:
            _wait(lambda: process.poll() is not None or is_up(), f"{program} to answer")
            if process.returncode is not None:
                raise CephError(f"{program} ended with exit code {process.returncode}")
        except CephError as error:
            said = printed.read_text(errors="replace").strip()[-2000:] or "nothing"
            free = shutil.disk_usage(self.run).free // 2**20
            where = f"logs in {self.run}-failed, {free:,} MiB free there"
            raise CephError(f"{error}; it printed: {said} ({where})") from error

    def _line(self, program: str, *arguments: str) -> list[str]:
        line = [str(self.root / "usr/bin" / program), "--conf", str(self.run / "ceph.conf"), *arguments]
        if program in ("ceph-authtool", "monmaptool"):
            line = [line[0], *arguments]
        return ["/usr/bin/python3", *line] if program == "ceph" else line

    def _environment(self) -> dict[str, str]:
        libraries = self.root / _LIBRARIES
        return {
            **{name: value for name, value in os.environ.items() if name != "PYTHONHOME"},
            "LD_LIBRARY_PATH": f"{libraries}:{libraries}/ceph:{self.root}/lib/x86_64-linux-gnu",
            "PYTHONPATH": str(self.root / "usr/lib/python3/dist-packages"),
        }


def _quietly(line: list[str]) -> None:
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        raise CephError(f"`{' '.join(line)}` failed: {done.stderr.strip()[-2000:]}")


def _wait(is_done: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + START_S
    while not is_done():
        if time.monotonic() > deadline:
            raise CephError(f"waited {START_S} s for {what}, without success")
        time.sleep(0.1)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _command(process: int) -> str:
    """Command line of a process; empty if it does not exist or has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("install", "start", "stop"))
    parser.add_argument("--folder", type=Path, default=Path("var/ceph"))
    parser.add_argument("--run", type=Path, help="folder of the running server; default: `run` in --folder")
    parser.add_argument("--port", type=int, help="port of the gateway; default: a free one")
    asked = parser.parse_args()
    server = Ceph(asked.folder, asked.run)
    try:
        if asked.what == "install":
            server.install()
        elif asked.what == "start":
            server.start(asked.port)
            print("\n".join(f"export {name}={value}" for name, value in server.variables.items()))
        else:
            server.stop()
    except CephError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
