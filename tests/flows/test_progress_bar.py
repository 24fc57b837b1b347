"""Progress bars are drawn on the error stream, and only in a terminal."""

import time

import pytest

from starpo.flows.console.progress import COUNTED, SHARE, progress_bar, status_line


@pytest.mark.parametrize(("columns", "shown"), [(COUNTED, "3/4"), (SHARE, "75%")])
def test_terminal_shows_progress_and_total(columns, shown, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with progress_bar("copying [red]mine", columns) as show:
        show(1, 4, "copying [red]yours")
        show(3, 4)
    out, err = capsys.readouterr()
    assert not out
    assert shown in err
    assert "copying [red]yours" in err


def test_a_file_is_shown_nothing(capsys):
    with progress_bar("copying", SHARE) as show:
        show(3, 4)
    assert capsys.readouterr() == ("", "")


def test_file_gets_progress_lines(capsys, monkeypatch):
    monkeypatch.setattr("starpo.flows.console.progress.PLAIN_EVERY_S", 0.01)
    with status_line("reading") as tell:
        tell("reading: audits")
        time.sleep(0.1)
    with progress_bar("runs", COUNTED) as show:
        show(3, 4)
        time.sleep(0.1)
    out, err = capsys.readouterr()
    assert not out
    assert "reading: audits\n" in err
    assert err.endswith("runs: 3 of 4\n")
