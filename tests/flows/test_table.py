"""Tables in a terminal: every word of every cell is shown whole, at any width."""

import re
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

import starpo.flows
from starpo.flows.console.table import print_table

_TEXT = st.text(st.sampled_from("ab[]_-/é界 \n"), max_size=60)
_ROWS = st.integers(1, 9).flatmap(
    lambda n: st.lists(st.lists(_TEXT, min_size=n, max_size=n), min_size=1, max_size=4).map(
        lambda rows: [{f"column_{place}": text for place, text in enumerate(row)} for row in rows]
    )
)


def rendered(rows, width: int, **more) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        print_table(console, rows, **more)
    return captured.get()


@pytest.mark.ci
@given(_ROWS, st.sampled_from([40, 80, 200]))
@example([dict.fromkeys("abcdefg", "") | {"what follows": "[1 2]more"}], 40)
def test_every_word_is_shown_whole(rows, width):
    shown = Counter(rendered(rows, width).split())
    words = Counter(word for row in rows for text in row.values() for word in text.split())
    assert not words - shown
    assert set(" ".join(name.replace("_", " ") for name in rows[0]).split()) <= set(shown)


@given(_ROWS, st.sampled_from([80, 200]))
def test_lines_fit_terminal_if_words_do(rows, width):
    assert max(map(len, rendered(rows, width).splitlines())) <= width


def test_fitting_rows_right_align_numbers():
    rows = [{"name": "a b", "group_size": 16, "rate": "0.5"}, {"name": "c", "group_size": 4, "rate": "12.5"}]
    lines = [line.rstrip() for line in rendered(rows, 80, title="two rows", numbers=("rate",)).splitlines()]
    assert lines == [
        "two rows",
        "",
        " name  group size  rate",
        " ──────────────────────",
        " a b           16   0.5",
        " c              4  12.5",
        "",
    ]


def test_wide_rows_become_records():
    rows = [{"key": "0" * 30, "digest": "1" * 30, "what": "x", "kept": None}, {"key": "2", "digest": "3"}]
    names = ["key", "digest", "what", "kept"]
    assert rendered(rows, 60, names=names).splitlines() == [
        f"key     {'0' * 30}",
        f"digest  {'1' * 30}",
        "what    x",
        "kept    ",
        "",
        "key     2",
        "digest  3",
        "what    ",
        "kept    ",
        "",
    ]
    assert len(rendered(rows, 80, names=names).splitlines()) == 6  # a table, where there is room


def test_multiline_header_is_one_record_field():
    assert rendered([{"ESS at\nlast\nreuse": "1" * 30, "key": "2" * 30}], 60).splitlines() == [
        f"ESS at last reuse  {'1' * 30}",
        f"key                {'2' * 30}",
        "",
    ]


def test_text_wraps_at_words_not_intervals():
    rows = [{"cell": "keep=0.25", "success": "0.375 [0.137, 0.694]", "note": "words " * 8}]
    lines = [line.rstrip() for line in rendered(rows, 46).splitlines()]
    assert lines[3:] == [
        " keep=0.25  0.375           words words words",
        "            [0.137, 0.694]  words words words",
        "                            words words",
        "",
    ]


def test_record_keeps_map_lines_indents_long():
    rows = [{"map": "#### ####\n#__# ####", "said": "very long " * 6, "key": "k" * 40}]
    assert rendered(rows, 60).splitlines() == [
        "map   #### ####",
        "      #__# ####",
        "said  " + " ".join(["very long"] * 5) + " very",
        "      long",
        "key   " + "k" * 40,
        "",
    ]


def test_values_shown_readably():
    row = {"a": None, "b": True, "c": 0.123456, "d": [1, 2], "e": {"k": "v"}, "f": Decimal("1.50"), "g": "\x1b[b]a[/b]"}
    assert rendered([row], 80).splitlines()[-2].split() == [
        "yes",
        "0.1235",
        "[1,",
        "2]",
        '{"k":',
        '"v"}',
        "1.5",
        "\ufffd[b]a[/b]",
    ]


def test_typed_names_shown_verbatim():
    assert "trajectory_id" in rendered([{"trajectory_id": "g0000-0"}], 80, are_names_exact=True)
    assert "trajectory_id" in rendered([], 80, names=["trajectory_id"], are_names_exact=True)


def test_no_rows_still_name_the_columns():
    assert rendered([], 80, names=["run", "group_id"]) == "no rows; the columns are run, group id\n"


def test_every_command_uses_this_table():
    for path in Path(starpo.flows.__file__).parent.rglob("*.py"):
        assert path.name == "table.py" or not re.search(r"from rich.table import|rich\.box", path.read_text()), path
