"""Text that is shown: nothing in it is hidden from the reader, and no secret is in it."""

import pytest

from starpo.ragen.core.visible import quoted


@pytest.mark.parametrize("secret", ["line1\nline2", "it's a secret", "both'\"quotes", "back\\slash\\'", "\u200bhidden"])
@pytest.mark.parametrize("beside", ["", "'", '"'])
def test_a_secret_is_masked_however_it_is_escaped(secret: str, beside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", secret)
    shown = quoted([f"{secret}{beside}"])
    assert shown.replace("\\", "") in (f"['***{beside}']", f'["***{beside}"]')  # the quotes depend on what is masked


def test_a_secret_that_is_longer_than_what_is_shown_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "abcdef" * 200)
    assert quoted("abcdef" * 200) == "'***'"
    assert quoted(f"http://me:{'hunter2' * 200}@host") == "'http://***@host'"
