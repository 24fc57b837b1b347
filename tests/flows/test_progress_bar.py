"""Progress bars are drawn on the error stream, and only in a terminal."""

import pytest

from starpo.flows.console.progress import COUNTED, SHARE, progress_bar


@pytest.mark.parametrize(("columns", "shown"), [(COUNTED, "3/4"), (SHARE, "75%")])
def test_a_terminal_is_shown_how_much_is_done_of_what(columns, shown, capsys, monkeypatch):
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
