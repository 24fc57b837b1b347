"""The identity of code changes with whatever may change its results, and not with comments and layout."""

import importlib.machinery
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from starpo.ragen.core import registry, sources
from starpo.ragen.core.identity import UNREADABLE, code_identity, is_reusable

REWARD = '''
"""A component."""
import numpy as np
from mine.shared import factor as times
from . import tables

BONUS = 1.0

def helper(values):
    return values * times()

def bonus(turns, config):
    # Pays for every turn.
    """Pay."""
    return helper(np.full(turns.num_rows, BONUS)) + tables.OFFSET
'''
SHARED = "RATE = 2\n\ndef factor():\n    return RATE\n"
TABLES = "OFFSET = 0.5\nROWS = 3\n"
FILES = {"__init__": "", "reward": REWARD, "shared": SHARED, "tables": TABLES}


def forget() -> None:
    for cached in (code_identity, sources.read, sources.find, sources.installed, sources.is_standard):
        cached.cache_clear()
    importlib.invalidate_caches()


@pytest.fixture
def identify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """`identify(target, **files)`: write package `mine` with changed files; identify the target with empty caches."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("STARPO_CODE_TOKEN", raising=False)

    def identity(target: str = "mine.reward:bonus", **changes: str) -> str:
        for name, text in {**FILES, **changes}.items():
            file = tmp_path / "mine" / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        forget()
        return code_identity(target)

    yield identity
    forget()


def test_identity_equal_in_every_process(identify: Callable[..., str]) -> None:
    here = identify()
    code = "from starpo.ragen.core.identity import code_identity; print(code_identity('mine.reward:bonus'), end='')"
    env = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True).stdout == here
    assert len(here) == 16


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# Pays for every turn.", "# Pays for each turn, and says so."),
        ("    # Pays for every turn.\n", ""),
        ("BONUS = 1.0", "BONUS   =   1.0  # each"),
        ("BONUS = 1.0", "\n\n\nBONUS = 1.0"),
        ("return helper(", "return  helper(\n"),
        ("    return values", "  return values"),
    ],
)
def test_comments_and_layout_do_not_matter(identify: Callable[..., str], old: str, new: str) -> None:
    assert old in REWARD
    assert identify(reward=REWARD.replace(old, new)) == identify()


R = "\ndef bonus(turns, config):\n    return R\n"
FALLBACK = "try:\n    from fast import R\nexcept ImportError:\n    from mine.slow import R\n" + R
RELATIVE = "from importlib import import_module\nR = import_module('.core', __package__).R\n" + R
EDITS = {
    "a constant": ({}, {"reward": REWARD.replace("1.0", "2.0")}),
    "the type of a number": ({}, {"reward": REWARD.replace("1.0", "1")}),
    "a blank line in a string": ({"tables": 'P = """a\nb"""\n'}, {"tables": 'P = """a\n\nb"""\n'}),
    "a block's extent": ({"tables": "if 0:\n  A = 1\n  B = 2\n"}, {"tables": "if 0:\n  A = 1\nB = 2\n"}),
    "a module that is imported": ({}, {"tables": TABLES.replace("0.5", "0.25")}),
    "what such a module imports": (
        {"shared": "from .tables import ROWS\n"},
        {"shared": "from .tables import ROWS\n", "tables": TABLES.replace("3", "4")},
    ),
    "import for its effect": (
        {"reward": "import mine.patches\n" + R, "patches": "import os\nos.x = 1\n"},
        {"reward": "import mine.patches\n" + R, "patches": "import os\nos.x = 2\n"},
    ),
    "the package's own file": ({}, {"__init__": "import os\nos.x = 1\n"}),
    "what the package's own file imports": (
        {"__init__": "from . import other\n", "other": "X = 1\n"},
        {"__init__": "from . import other\n", "other": "X = 2\n"},
    ),
    "a bare call at module level": (
        {"reward": "def put(x): globals()['R'] = x\nput(1)\n" + R},
        {"reward": "def put(x): globals()['R'] = x\nput(2)\n" + R},
    ),
    "the fallback of an import": (
        {"reward": FALLBACK, "slow": "R = 1\n"},
        {"reward": FALLBACK, "slow": "R = 2\n"},
    ),
    "the first of two star imports": (
        {"reward": "from .one import *\nfrom .two import *\n" + R, "one": "R = 1\n", "two": "S = 1\n"},
        {"reward": "from .one import *\nfrom .two import *\n" + R, "one": "R = 2\n", "two": "S = 1\n"},
    ),
    "import_module": (
        {"reward": "import importlib\nR = importlib.import_module('mine.core').R\n" + R, "core": "R = 1\n"},
        {"reward": "import importlib\nR = importlib.import_module('mine.core').R\n" + R, "core": "R = 2\n"},
    ),
    "import_module, relative": (
        {"reward": RELATIVE, "core": "R = 1\n"},
        {"reward": RELATIVE, "core": "R = 2\n"},
    ),
    "__import__": (
        {"reward": "R = __import__('mine.core')\n" + R, "core": "R = 1\n"},
        {"reward": "R = __import__('mine.core')\n" + R, "core": "R = 2\n"},
    ),
    "a docstring": ({}, {"reward": REWARD.replace("Pay.", "Pay what is due.")}),
    "a base class": (
        {"reward": "from .base import Base\nclass G(Base): pass\n" + R, "base": "class Base:\n    x = 1\n"},
        {"reward": "from .base import Base\nclass G(Base): pass\n" + R, "base": "class Base:\n    x = 2\n"},
    ),
}  # fmt: skip
"""Kind of edit -> the files before it and after it; the target is `mine.reward:bonus`."""


@pytest.mark.parametrize("kind", EDITS)
def test_every_edit_matters(identify: Callable[..., str], kind: str) -> None:
    before, after = EDITS[kind]
    assert identify(**after) != identify(**before)
    assert identify(**before) == identify(**before)


@pytest.mark.parametrize(
    "block",
    [
        "def f():\n    IMPORT\n",
        "with open('x'):\n    IMPORT\n",
        "for _ in range(1):\n    IMPORT\n",
        "match 1:\n    case 1:\n        IMPORT\n",
        "try:\n    pass\nfinally:\n    IMPORT\n",
        "if True: IMPORT\n",
        "x = 1; IMPORT; y = 2\n",
        "class A:\n    async def f(self):\n        IMPORT\n",
    ],
)
@pytest.mark.parametrize(
    "statement",
    [
        "import mine.shared",
        "import os, mine.shared as s",
        "from mine.shared import factor",
        "from mine.shared import *",
        "from .shared import (factor as f, RATE)",
        "from . import shared",
        "from mine import shared as s",
    ],
)
def test_every_import_counts(identify: Callable[..., str], block: str, statement: str) -> None:
    text = block.replace("IMPORT", statement) + R
    assert identify(reward=text) != identify(reward=text, shared=SHARED.replace("RATE = 2", "RATE = 3"))


def test_attributes_have_separate_identities(identify: Callable[..., str]) -> None:
    assert identify("mine.reward:bonus") != identify("mine.reward:helper")


def test_modules_that_import_each_other_end(identify: Callable[..., str]) -> None:
    around = {"shared": f"from mine.tables import *\n{SHARED}", "tables": f"from mine.reward import *\n{TABLES}"}
    assert identify(**around) != identify(**{**around, "tables": f"{around['tables']}\nX = 1\n"})


def test_a_package_without_init_is_followed(identify: Callable[..., str], tmp_path: Path) -> None:
    folder = tmp_path / "mine" / "deep"
    folder.mkdir(parents=True)
    identities = []
    for number in (1, 2):
        (folder / "rule.py").write_text(f"R = {number}\n")
        identities.append(identify(reward="from mine.deep.rule import R\n" + R))
    assert identities[0] != identities[1]


def test_deep_code_is_read(identify: Callable[..., str]) -> None:
    """A chain of 3,000 terms, brackets 90 deep, and imports 1,200 modules deep."""
    deep = "X = " + " + ".join(["1"] * 3000) + "\nY = " + "(" * 90 + "1" + ")" * 90 + "\n"
    assert identify(tables=deep) != identify(tables=deep.replace("1)", "2)"))
    chain = {f"m{n}": f"import mine.m{n + 1}\n" for n in range(1200)} | {"m1200": "X = 1\n"}
    first = identify(reward="import mine.m0\n" + R, **chain)
    assert identify(reward="import mine.m0\n" + R, m1200="X = 2\n") != first


def test_missing_module_counts_once_present(identify: Callable[..., str], tmp_path: Path) -> None:
    text = "try:\n    import fast_mine\nexcept ImportError:\n    pass\n" + R
    first = identify(reward=text)
    assert is_reusable(first)
    (tmp_path / "fast_mine.py").write_text("R = 1\n")
    assert identify(reward=text) != first


def test_file_shadowing_standard_library_is_local(identify: Callable[..., str], tmp_path: Path) -> None:
    text = "import colorsys\n" + R
    first = identify(reward=text)
    (tmp_path / "colorsys.py").write_text("R = 1\n")
    assert identify(reward=text) != first


def test_non_python_source_counts_as_text(identify: Callable[..., str]) -> None:
    assert identify(tables="def (:\n") != identify(tables="def ):\n")


def test_code_is_never_executed(identify: Callable[..., str]) -> None:
    assert is_reusable(identify(__init__="raise SystemExit(3)\n", reward="import sys\nsys.exit(4)\n"))


def install(folder: Path, version: str, text: str = "X = 1\n", *, record: bool = True, direct_url: str = "") -> None:
    """Lay out a distribution `Lib-Dist` with the package `lib_of_others` as pip does."""
    (folder / "lib_of_others").mkdir(parents=True, exist_ok=True)
    (folder / "lib_of_others" / "__init__.py").write_text(text)
    sources._distributions.cache_clear()
    info = folder / "lib_dist.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: Lib-Dist\nVersion: {version}\n")
    (info / "top_level.txt").write_text("lib_of_others\n")
    if record:
        (info / "RECORD").write_text("lib_of_others/__init__.py,,\nlib_dist.dist-info/RECORD,,\n")
    if direct_url:
        (info / "direct_url.json").write_text(direct_url)


USES = "import lib_of_others\n" + R


@pytest.mark.ci
@pytest.mark.parametrize("record", [True, False])
def test_distribution_counts_by_version_anywhere(
    identify: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: bool
) -> None:
    """As `pip install --target` and some systems lay it out: no folder is called site-packages."""
    monkeypatch.syspath_prepend(str(tmp_path / "vendored"))
    install(tmp_path / "vendored", "1.0", record=record)
    first = identify(reward=USES)
    install(tmp_path / "vendored", "1.0", "X = 2\n", record=record)
    assert identify(reward=USES) == first
    install(tmp_path / "vendored", "1.1", "X = 2\n", record=record)
    assert identify(reward=USES) != first


@pytest.mark.parametrize("how", ["editable", "checkout", "no metadata"])
def test_editable_code_counts_by_text(
    identify: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    folder = tmp_path / "site-packages"
    monkeypatch.syspath_prepend(str(folder))
    url = json.dumps({"url": "file:///there", "dir_info": {"editable": True}}) if how == "editable" else ""
    identities = []
    for number in (1, 2):
        install(folder, "1.0", f"X = {number}\n", record=how == "editable", direct_url=url)
        if how == "checkout":
            (folder / "pyproject.toml").write_text("")
        if how == "no metadata":
            for file in (folder / "lib_dist.dist-info").iterdir():
                file.unlink()
        identities.append(identify(reward=USES))
    assert identities[0] != identities[1]


def test_shared_namespace_split_by_distribution(
    identify: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, module in (("one", "theirs"), ("two", "ours")):
        monkeypatch.syspath_prepend(str(tmp_path / folder))
        (tmp_path / folder / "shared_ns").mkdir(parents=True)
        (tmp_path / folder / "shared_ns" / f"{module}.py").write_text("X = 1\n")
    sources._distributions.cache_clear()
    info = tmp_path / "one" / "theirs.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "RECORD").write_text("shared_ns/theirs.py,,\n")
    text = "from shared_ns import ours\nimport shared_ns.theirs\n" + R
    first = identify(reward=text)
    (tmp_path / "one" / "shared_ns" / "theirs.py").write_text("X = 2\n")
    assert identify(reward=text) == first
    (tmp_path / "two" / "shared_ns" / "ours.py").write_text("X = 2\n")
    assert identify(reward=text) != first


def test_targets_package_counts_by_text(
    identify: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    install(tmp_path / "site-packages", "1.0")
    first = identify("lib_of_others:X")
    install(tmp_path / "site-packages", "1.0", "X = 2\n")
    assert identify("lib_of_others:X") != first


def test_sourceless_module_counts_by_bytes(identify: Callable[..., str], tmp_path: Path) -> None:
    text = "import mine.compiled\n" + R
    (tmp_path / "mine").mkdir()
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    identities = []
    for content in (b"\x7fELF1", b"\x7fELF2"):
        (tmp_path / "mine" / f"compiled{suffix}").write_bytes(content)
        identities.append(identify(reward=text))
    assert identities[0] != identities[1]
    assert all(map(is_reusable, identities))


def test_memory_built_code_is_never_equal(identify: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = identify("nowhere:thing")
    assert first.startswith(UNREADABLE)
    assert not is_reusable(first)
    assert identify("nowhere:thing") == first  # in this run and the processes that it starts
    monkeypatch.delenv("STARPO_CODE_TOKEN")
    assert identify("nowhere:thing") != first
    monkeypatch.setitem(sys.modules, "made_up", type(sys)("made_up"))
    assert not is_reusable(identify(reward="import made_up\n" + R))


def test_source_in_an_archive_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("zipped.py", "def f():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "code.zip"))
    identity = code_identity("zipped:f")
    assert is_reusable(identity)
    assert len(identity) == 16


@pytest.mark.parametrize(
    "names",
    ["ENVIRONMENTS", "REWARDS", "FILTERS", "ADVANTAGES", "PROMPTS"],
)
def test_registered_objects_have_sources(names: str) -> None:
    entries: dict[str, str] = dict(getattr(registry, names))
    identities = {name: code_identity(target) for name, target in entries.items()}
    assert all(len(identity) == 16 for identity in identities.values()), identities
    assert len(set(identities.values())) == len(entries)


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., str]:
    """`project(edits)`: the identity of Sokoban in a copy of this project without metadata, after replacing texts."""
    root = Path(sources.__file__).resolve().parents[2]
    copied = tmp_path / "copied"
    (copied / "starpo").mkdir(parents=True)
    (copied / "starpo" / "__init__.py").write_text((root / "starpo" / "__init__.py").read_text())
    for floor in ("ragen", "schemas"):
        subprocess.run(["cp", "-r", str(root / floor), str(copied / "starpo" / floor)], check=True)

    def identity(file: str = "", old: str = "", new: str = "") -> str:
        path = copied / "starpo" / "ragen" / (file or "envs/base.py")
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        code = (
            "import starpo.ragen.core.identity as i; assert 'copied' in i.__file__; "
            "print(i.code_identity('starpo.ragen.envs.sokoban.environment:Sokoban'), end='')"
        )
        env = {**os.environ, "PYTHONPATH": str(copied), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=copied, capture_output=True, text=True, check=True
        )
        path.write_text(text)
        return done.stdout

    return identity


@pytest.mark.ci
def test_project_methods_followed_not_floors(project: Callable[..., str]) -> None:
    first = project()
    assert len(first) == 16
    assert first == code_identity("starpo.ragen.envs.sokoban.environment:Sokoban")
    assert project("envs/sokoban/rooms.py", "import ", "X = 1\nimport ") != first
    assert project("envs/base.py", '"""', '"""An edited docstring. ') == first
    assert project("envs/__init__.py", '"""', '"""An edited map. ') == first
    assert project("core/errors.py", "class StarPOError", "X = 1\n\n\nclass StarPOError") == first
    assert project("envs/bandit/environment.py", "import ", "X = 1\nimport ") == first
