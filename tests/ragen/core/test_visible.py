"""Displayed text contains nothing hidden from the reader, and no secrets."""

import pytest

from starpo.ragen.core.visible import quoted, visible


@pytest.mark.parametrize("secret", ["line1\nline2", "it's a secret", "both'\"quotes", "back\\slash\\'", "\u200bhidden"])
@pytest.mark.parametrize("beside", ["", "'", '"'])
def test_escaped_secret_is_masked(secret: str, beside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", secret)
    shown = quoted([f"{secret}{beside}"])
    assert shown.replace("\\", "") in (f"['***{beside}']", f'["***{beside}"]')  # the quotes depend on what is masked


def test_secret_longer_than_display_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "abcdef" * 200)
    assert quoted("abcdef" * 200) == "'***'"
    assert quoted(f"http://me:{'hunter2' * 200}@host") == "'http://***@host'"


@pytest.mark.parametrize(
    "unseen",
    [
        "\u034f",
        "\u115f",
        "\u1160",
        "\u17b4",
        "\u180b",
        "\u3164",
        "\ufe00",
        "\ufe0f",
        "\uffa0",
        "\U000e0100",
        "\U000e01ef",
    ],
)
def test_invisible_printable_character_is_replaced(unseen: str) -> None:
    assert unseen.isprintable()
    assert visible(f"run{unseen}name") == "run\ufffdname"
    assert visible(f"run{unseen}name", lambda _: "") == "runname"
    assert unseen not in quoted(f"run{unseen}name")
    assert "\\" in quoted(f"run{unseen}name")


@pytest.mark.parametrize(
    "emoji",
    [
        "\u2764\ufe0f",
        "\u260e\ufe0e",
        "1\ufe0f\u20e3",
        "\u00a9\ufe0f",
        "\U0001f3f3\ufe0f\u200d\U0001f308",
        "\U0001f44d\U0001f3fd",
    ],
)
def test_an_emoji_keeps_its_variation_selector(emoji: str) -> None:
    assert visible(f"{emoji} {emoji}") == f"{emoji} {emoji}"


def test_emoji_keeps_one_variation_selector() -> None:
    """A sequence of them can carry hidden text."""
    assert visible("\u2764\ufe0f\ufe01\U000e0141") == "\u2764\ufe0f\ufffd\ufffd"
    assert visible("\U0001f600\ufe0f\ufe0f") == "\U0001f600\ufe0f\ufffd"
