"""One-line descriptions of errors."""

import pytest

from starpo.ragen.core.errors import StoreError, first_line, named_line, one_line


@pytest.mark.parametrize(
    ("text", "first", "whole"),
    [
        ("it is gone.\n  make it again", "it is gone", "it is gone. make it again"),
        ("", "StoreError", ""),
        (" \n", "StoreError", ""),
    ],
)
def test_error_without_text_is_described(text: str, first: str, whole: str) -> None:
    error = StoreError(text)
    assert (first_line(error), one_line(error)) == (first, whole)
    assert named_line(error) == f"StoreError: {first}"
