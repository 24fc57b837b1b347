"""The recorded revision shows whether the code that ran was that of the commit."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.store.artifacts import provenance


def git(root: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", str(root), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "ragen").mkdir()
    (tmp_path / "ragen" / "loss.py").write_text("a = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return tmp_path


def test_clean_tree_is_its_commit(root: Path) -> None:
    (root / "notes.txt").write_text("no code")
    assert provenance.revision_of(root) == git(root, "rev-parse", "HEAD")


@pytest.mark.parametrize("name", ["loss.py", "added.py", "envs/added.py"])
def test_modified_tree_is_identified_by_content(root: Path, name: str) -> None:
    file, revisions = root / "ragen" / name, []
    file.parent.mkdir(exist_ok=True)
    for content in (b"a = 2\n", b"a = 3\n", b"a = '\xe9'\n"):
        file.write_bytes(content)
        revisions.append(provenance.revision_of(root) or "")
    commit = git(root, "rev-parse", "HEAD")
    assert [revision.rpartition("-")[0] for revision in revisions] == [f"{commit}-modified"] * 3
    assert len(set(revisions)) == 3


@pytest.mark.parametrize("command", ["diff", "ls-files"])
def test_unchecked_tree_is_marked(root: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    run = subprocess.run

    def slow(arguments: list[str], **options: Any) -> Any:
        if command in arguments:
            raise subprocess.TimeoutExpired(arguments, 5)
        return run(arguments, **options)

    commit = git(root, "rev-parse", "HEAD")
    monkeypatch.setattr(subprocess, "run", slow)
    assert provenance.revision_of(root) == f"{commit}-unchecked"


def test_outside_a_checkout_there_is_none(tmp_path: Path) -> None:
    assert provenance.revision_of(tmp_path) is None
