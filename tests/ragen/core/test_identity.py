"""The identity of code changes with the meaning of the code, and with nothing else."""

import ast
import importlib
import py_compile
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.core import registry
from starpo.ragen.core.definitions import find_spec, read
from starpo.ragen.core.identity import UNREADABLE, _distributions, code_identity, is_reusable

REWARD = '''
"""A component."""
import numpy as np
from mine.shared import factor as times
from . import tables

BONUS = 1.0
UNRELATED = 2.0

class Config:
    pass

def helper(values):
    return values * times()

def bonus(turns, config):
    # Pays for every turn.
    """Pay."""
    return helper(np.full(turns.num_rows, BONUS)) + tables.OFFSET

def unrelated():
    return UNRELATED
'''
SHARED = "RATE = 2\n\ndef factor():\n    return RATE\n\ndef other():\n    return 0\n"
TABLES = "OFFSET = 0.5\nROWS = 3\n"
FILES = {"__init__.py": "", "reward.py": REWARD, "shared.py": SHARED, "tables.py": TABLES}


@pytest.fixture
def identify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """`identify(target, **changes)`: write package `mine` with changed files; identify the target with empty caches."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("RAGEN_CODE_TOKEN", raising=False)

    def forget() -> None:
        for cached in (code_identity, read, find_spec, _distributions):
            cached.cache_clear()
        for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
            del sys.modules[name]
        importlib.invalidate_caches()

    def identity(target: str = "mine.reward:bonus", **changes: str) -> str:
        folder = tmp_path / "mine"
        folder.mkdir(exist_ok=True)
        for name, text in {**FILES, **{f"{name}.py": text for name, text in changes.items()}}.items():
            (folder / name).write_text(text)
        forget()
        return code_identity(target)

    yield identity
    forget()


def test_it_is_the_same_in_every_process(identify: Callable[..., str]) -> None:
    here = identify()
    code = "from starpo.ragen.core.identity import code_identity; print(code_identity('mine.reward:bonus'), end='')"
    env = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True).stdout == here
    assert len(here) == 16


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# Pays for every turn.", "# Pays for each turn, and says so."),
        ('"""Pay."""', '"""Pay what is due."""'),
        ('"""A component."""', '"""Another story."""'),
        ("def bonus(turns, config):", "def bonus(turns: object, config: 'Config') -> object:"),
        ("BONUS = 1.0", "BONUS   =   1.0"),
        ("return helper(", "return  helper("),
        ("UNRELATED = 2.0", "UNRELATED = 3.0"),
        ("return UNRELATED", "return UNRELATED + 1"),
        ("class Config:\n    pass", "class Config:\n    x = 1"),
    ],
)
def test_what_means_nothing_to_it_does_not_matter(identify: Callable[..., str], old: str, new: str) -> None:
    assert old in REWARD
    assert identify(reward=REWARD.replace(old, new)) == identify()


@pytest.mark.parametrize(
    "changes",
    [
        {"reward": REWARD.replace("BONUS = 1.0", "BONUS = 2.0")},
        {"reward": REWARD.replace("+ tables.OFFSET", "- tables.OFFSET")},
        {"reward": REWARD.replace("values * times()", "values + times()")},
        {"reward": REWARD.replace("BONUS = 1.0", "BONUS = 1")},
        {"reward": REWARD + "\nBONUS = BONUS + 1\n"},
        {"reward": REWARD.replace("def bonus", "@staticmethod\ndef bonus")},
        {"shared": SHARED.replace("RATE = 2", "RATE = 3")},
        {"shared": SHARED.replace("return RATE", "return -RATE")},
        {"tables": TABLES.replace("OFFSET = 0.5", "OFFSET = 0.25")},
        {"shared": "from mine.tables import *\n\ndef factor():\n    return ROWS\n"},
    ],
)
def test_what_it_refers_to_matters_wherever_it_stands(identify: Callable[..., str], changes: dict[str, str]) -> None:
    assert identify(**changes) != identify()


def test_what_is_not_referred_to_does_not_matter_in_other_modules_either(identify: Callable[..., str]) -> None:
    assert identify(shared=SHARED.replace("return 0", "return 1"), tables=TABLES.replace("3", "4")) == identify()


def test_base_classes_methods_and_imports_within_functions_are_followed(identify: Callable[..., str]) -> None:
    text = (
        "from mine.base import Base\n\nclass Game(Base):\n    def step(self):\n"
        "        from mine import tables\n        return tables.ROWS\n"
    )
    base = "class Base:\n    def reset(self):\n        return 0\n"
    first = identify("mine.reward:Game", reward=text, base=base)
    assert identify("mine.reward:Game", reward=text, base=base.replace("return 0", "return 1")) != first
    assert identify("mine.reward:Game", reward=text, base=base, tables=TABLES.replace("3", "4")) != first
    assert identify("mine.reward:Game", reward=text, base=base, tables=TABLES.replace("0.5", "1.5")) == first


def test_this_project_is_followed_where_it_is_installed_too(
    identify: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version of this project is the same for many states of its code."""
    text = "from starpo.ragen.envs.base import Environment\n\nclass Game(Environment):\n    pass\n"
    in_a_checkout = identify("mine.reward:Game", reward=text)
    monkeypatch.setattr("starpo.ragen.core.identity._is_installed", lambda _: True)
    assert identify("mine.reward:Game", reward=text) == in_a_checkout


def test_code_that_refers_to_itself_ends(identify: Callable[..., str]) -> None:
    even = "def bonus(n):\n    return n == 0 or odd(n - 1)\n\ndef odd(n):\n    return n != 0 and bonus(n - 1)\n"
    assert identify(reward=even) != identify(reward=even.replace("n != 0", "n > 0"))


@pytest.mark.parametrize(
    "reward", [REWARD.replace("BONUS = 1.0", ""), REWARD.replace("BONUS = 1.0", "from .shared import *")]
)
def test_modules_that_import_everything_from_each_other_end(identify: Callable[..., str], reward: str) -> None:
    around = {"shared": f"from mine.tables import *\n{SHARED}", "tables": f"from mine.shared import *\n{TABLES}"}
    assert identify(reward=reward, **around) != identify(reward=reward + "\nBONUS = 2\n", **around)


def test_of_modules_that_import_everything_from_each_other_the_nearest_defines_a_name(
    identify: Callable[..., str],
) -> None:
    files = {
        "reward": "from mine.first import *\n\ndef bonus(turns, config):\n    return RATE\n",
        "first": "from mine.second import *\nfrom mine.shared import *\n",
        "second": "from mine.first import *\nfrom mine.third import *\n",
        "third": "RATE = 5\n",
    }
    first = identify(**files)
    assert identify(**files, shared=SHARED.replace("RATE = 2", "RATE = 3")) != first
    assert identify(**files, shared=SHARED.replace("return 0", "return 1")) == first


BLOCKS = {
    "with": "with open('x'):\n    IMPORT\n",
    "for": "for _ in range(1):\n    IMPORT\n",
    "while": "while True:\n    IMPORT\n    break\n",
    "match": "match 1:\n    case 1:\n        IMPORT\n",
    "try": "try:\n    pass\nfinally:\n    IMPORT\n",
    "except": "try:\n    pass\nexcept ValueError:\n    IMPORT\n",
    "except*": "try:\n    pass\nexcept* ValueError:\n    IMPORT\n",
    "nested": "if True:\n    try:\n        pass\n    except ValueError:\n        with open('x'):\n            IMPORT\n",
}


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("statement", ["from mine.shared import factor", "from mine.shared import *"])
def test_what_is_imported_in_a_block_matters(identify: Callable[..., str], block: str, statement: str) -> None:
    text = BLOCKS[block].replace("IMPORT", statement) + "def bonus(turns, config):\n    return factor()\n"
    assert identify(reward=text) != identify(reward=text, shared=SHARED.replace("RATE = 2", "RATE = 3"))


@pytest.mark.parametrize("block", BLOCKS)
def test_what_is_defined_in_a_block_matters(identify: Callable[..., str], block: str) -> None:
    text = BLOCKS[block].replace("IMPORT", "factor = lambda: 1") + "def bonus(turns, config):\n    return factor()\n"
    assert identify(reward=text) != identify(reward=text.replace("lambda: 1", "lambda: 2"))
    text = text.replace("factor = lambda: 1", "def factor(): return 1")
    assert identify(reward=text) != identify(reward=text.replace("return 1", "return 2"))


def test_a_name_that_is_made_as_the_module_is_loaded_stands_for_the_whole_module(identify: Callable[..., str]) -> None:
    text = "globals()['bonus'] = lambda turns, config: 1\nX = 1\n"
    assert identify(reward=text) != identify(reward=text.replace("config: 1", "config: 2"))


def test_a_module_without_source_counts_by_the_version_of_its_distribution(
    identify: Callable[..., str], tmp_path: Path
) -> None:
    def compiled(version: str | None) -> str:
        identify()
        file = tmp_path / "mine" / "reward.py"
        py_compile.compile(str(file), cfile=str(file.with_suffix(".pyc")))
        file.unlink()
        for info in tmp_path.glob("mine-*.dist-info/*"):
            info.unlink()
        if version:
            folder = tmp_path / "mine-1.dist-info"
            folder.mkdir(exist_ok=True)
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: mine\nVersion: {version}\n")
            (folder / "top_level.txt").write_text("mine\n")
            (folder / "RECORD").write_text("")
        for cached in (code_identity, read, find_spec, _distributions):
            cached.cache_clear()
        return code_identity("mine.reward:bonus")

    assert compiled("1.2") == "mine==1.2"
    assert compiled("1.3") == "mine==1.3"
    unknown = compiled(None)
    assert unknown.startswith(UNREADABLE)
    assert not is_reusable(unknown)
    assert is_reusable("mine==1.2")


def test_code_built_in_memory_is_another_in_every_run(
    identify: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = identify("nowhere:thing")
    assert not is_reusable(first)
    assert identify("nowhere:thing") == first  # in this run and the processes that it starts
    monkeypatch.delenv("RAGEN_CODE_TOKEN")
    assert identify("nowhere:thing") != first


def test_source_in_an_archive_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("zipped.py", "def f():\n    return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "code.zip"))
    identity = code_identity("zipped:f")
    assert is_reusable(identity)
    assert len(identity) == 16


@pytest.mark.parametrize(
    "names",
    ["ENVIRONMENTS", "REWARDS", "FILTERS", "ADVANTAGES", "PROMPTS", "LOSSES"],
)
def test_all_that_is_registered_here_has_a_source(names: str) -> None:
    entries: dict[str, str] = dict(getattr(registry, names))
    for suite in registry.SUITES:  # code that imports missing packages cannot be distinguished
        if find_spec(suite) is None:
            entries.pop(suite, None)
    identities = {name: code_identity(target) for name, target in entries.items()}
    assert all(len(identity) == 16 for identity in identities.values()), identities
    assert len(set(identities.values())) == len(entries)


def test_threads_take_turns_to_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 fails where two of them build syntax trees at once; one of another library may do so all the same."""
    parse, inside, most, failures = ast.parse, [0], [0], [SystemError("AST constructor recursion depth mismatch")] * 2

    def slow(text: str, *rest: Any, **more: Any) -> ast.Module:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        inside[0] -= 1
        if failures:
            raise failures.pop()
        return parse(text, *rest, **more)

    monkeypatch.setattr(ast, "parse", slow)
    modules = [f"starpo.ragen.core.{name}" for name in ("errors", "lookup", "registry", "seeding")]
    with ThreadPoolExecutor(len(modules)) as threads:
        assert all(threads.map(read.__wrapped__, modules))
    assert most == [1]


def test_nothing_is_imported_and_no_torch() -> None:
    code = (
        "import sys; from starpo.ragen.core.identity import code_identity; "
        "from starpo.ragen.core.registry import ADVANTAGES; "
        "code_identity(ADVANTAGES['gae']); print('torch' in sys.modules, "
        "'starpo.ragen.learning.objectives.advantages' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
