"""A run is packed into one file, complete, reproducible and without secrets; a file from elsewhere is not trusted."""

import errno
import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, ConfigError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping import packing
from starpo.ragen.store.keeping.integrity import verify_store
from starpo.ragen.store.keeping.packing import HEAD_NAME, pack_run, unpack_run
from starpo.ragen.store.remote.location import Location

MakeRun = Callable[..., list[tuple[str, str]]]


pytestmark = pytest.mark.usefixtures("nothing_verified_yet")


def members(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def write_tar(file: Path, content: dict[str, bytes]) -> Path:
    with tarfile.open(file, "w") as tar:
        for name, data in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file


@pytest.fixture
def packed(local: Store, make_run: MakeRun, tmp_path: Path) -> Path:
    make_run(local, "a")
    make_run(local, "b", keep=0.25)
    pack_run(Location(local.url), "a", tmp_path / "a.tar")
    return tmp_path / "a.tar"


def test_a_packed_run_is_whole_elsewhere(local: Store, packed: Path, tmp_path: Path) -> None:
    other = Store(str(tmp_path / "other"))
    copied = unpack_run(packed, Location(other.url))
    assert (copied.run, copied.num_present, other.runs.names()) == ("a", 0, ("a",))
    assert other.runs.iterations("a") == local.runs.iterations("a")
    assert other.runs.seals("a").broken == {}
    assert verify_store(Location(other.url)).damages == []
    again = unpack_run(packed, Location(other.url))
    assert (again.num_copied, again.num_present) == (0, copied.num_copied)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".ragen")] == []


def test_the_same_run_gives_the_same_bytes(local: Store, packed: Path, tmp_path: Path) -> None:
    done = pack_run(Location(local.url), "a", tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == packed.read_bytes()
    assert done.size_bytes == packed.stat().st_size
    with pytest.raises(ConfigError, match="already exists"):
        pack_run(Location(local.url), "a", packed)


@pytest.mark.parametrize("name", ["tmp", "leases", "quarantine"])
def test_a_run_may_be_called_as_what_is_left_out(local: Store, make_run: MakeRun, tmp_path: Path, name: str) -> None:
    make_run(local, name)
    pack_run(Location(local.url), name, tmp_path / "a.tar")
    assert not any("/leases/0" in member for member in members(tmp_path / "a.tar"))
    other = Store(str(tmp_path / "other"))
    assert unpack_run(tmp_path / "a.tar", Location(other.url)).run == name
    assert other.runs.iterations(name) == local.runs.iterations(name)


def test_a_run_of_which_something_is_missing_is_not_packed(local: Store, make_run: MakeRun, tmp_path: Path) -> None:
    kind, key = make_run(local, "a")[1]
    (Path(local.url) / kind / key / "manifest.json").unlink()
    with pytest.raises(ArtifactMissingError, match="cannot be copied whole"):
        pack_run(Location(local.url), "a", tmp_path / "a.tar")
    assert not (tmp_path / "a.tar").exists()


def test_a_full_disk_is_told_and_leaves_nothing(
    local: Store, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(local, "a")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(packing, "_add", full)
    with pytest.raises(ConfigError, match=r"the file .*/out/a\.tar cannot be written \(No space left on device\)"):
        pack_run(Location(local.url), "a", tmp_path / "out" / "a.tar")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("address", ["https://me:pass-word@there/v1", "https://there/v1?key=abcdef"])
def test_secrets_are_not_packed(local: Store, tmp_path: Path, address: str) -> None:
    local.runs.create("a", flow="starpo", preset=None, config={"engine": {"url": address}})
    local.runs.set_state("a", "completed")
    with pytest.raises(StoreError, match=r"runs/a/run.json holds what looks like a secret"):
        pack_run(Location(local.url), "a", tmp_path / "a.tar")
    assert not (tmp_path / "a.tar").exists()


def test_a_changed_byte_is_noticed(packed: Path, tmp_path: Path) -> None:
    content = members(packed)
    name = next(name for name in content if name.endswith(".parquet"))
    content[name] = content[name][:-1] + b"x"
    with pytest.raises(ArtifactDamagedError):
        unpack_run(write_tar(tmp_path / "changed.tar", content), Location(str(tmp_path / "other")))
    record = next(name for name in content if "/iterations/" in name)
    content = members(packed)
    content[record] = content[record].replace(b'"stages"', b' "stages"', 1)
    with pytest.raises(ArtifactDamagedError):
        unpack_run(write_tar(tmp_path / "record.tar", content), Location(str(tmp_path / "other")))
    assert Store(str(tmp_path / "other")).runs.find("a") is None


NAMES = ["../out", "/tmp/out", "runs/../../out", "runs//a", "runs/.hidden", "lonely", "a\nb/c", HEAD_NAME]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_lead_elsewhere_are_refused(packed: Path, tmp_path: Path, name: str) -> None:
    file = write_tar(tmp_path / "evil.tar", {HEAD_NAME: members(packed)[HEAD_NAME]})
    with tarfile.open(file, "a") as tar:
        tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(StoreError, match=f"contains {re.escape(repr(name))}, which is not a store file"):
        unpack_run(file, Location(str(tmp_path / "deep" / "other")))
    assert not list(tmp_path.rglob("out"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE])
def test_members_that_are_no_files_are_refused(packed: Path, tmp_path: Path, kind: bytes) -> None:
    file = write_tar(tmp_path / "evil.tar", {HEAD_NAME: members(packed)[HEAD_NAME]})
    with tarfile.open(file, "a") as tar:
        info = tarfile.TarInfo("runs/a/run.json")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(StoreError, match=r"not a store file|not a file written by `ragen pack`"):
        unpack_run(file, Location(str(tmp_path / "other")))


def test_what_is_no_pack_is_told(packed: Path, tmp_path: Path) -> None:
    target = Location(str(tmp_path / "other"))
    (tmp_path / "text.tar").write_text("no tar")
    head = json.loads(members(packed)[HEAD_NAME])
    (tmp_path / "cut.tar").write_bytes(packed.read_bytes()[:5_000])
    for file, message in {
        tmp_path / "absent.tar": "cannot be unpacked",
        tmp_path / "text.tar": "is not a file written by `ragen pack`",
        tmp_path / "cut.tar": "is truncated",
        write_tar(tmp_path / "bare.tar", {"runs/a/run.json": b"{}"}): "does not begin with ragen-pack.json",
        write_tar(tmp_path / "new.tar", {HEAD_NAME: json.dumps({**head, "format": 9}).encode()}): "has format 9",
        write_tar(tmp_path / "empty.tar", {HEAD_NAME: json.dumps(head).encode()}): "contains 0 of .* files",
    }.items():
        with pytest.raises(StoreError, match=message):
            unpack_run(file, target)
