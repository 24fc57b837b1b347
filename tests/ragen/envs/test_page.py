"""Text rendered as an image: every line appears, long lines are wrapped, and any text can be drawn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.envs.lettering import letter
from starpo.ragen.envs.page import page

LINE = 22  # pixels


def test_a_line_more_is_22_pixels_more():
    assert page("title", "one\ntwo").shape[0] - page("title", "one").shape[0] == LINE
    assert page("title", "word " * 13).shape == page("title", "one\ntwo").shape  # 65 characters wrap to two lines


def test_what_is_written_is_what_is_seen():
    ink, picture = letter("+ 7", 2), page("title", "+ 7")
    top = picture.shape[0] - LINE - 12
    found = (picture[top : top + ink.shape[0], 12 : 12 + ink.shape[1]] == (40, 44, 52)).all(axis=2)
    np.testing.assert_array_equal(found, ink)


def test_long_texts_end_in_an_ellipsis():
    assert page("t", "x\n" * 100).shape == page("t", "x\n" * 28).shape
    np.testing.assert_array_equal(page("t", "x\n" * 100), page("t", "x\n" * 27 + "..."))


@pytest.mark.parametrize("mark", ".,:;?!'\"+-*/=%$()[]")
def test_every_mark_has_a_form_of_its_own(mark):
    drawn = letter(mark, 1)
    assert drawn.shape == (7, 5)
    assert drawn.any()
    assert sum(np.array_equal(drawn, letter(other, 1)) for other in ".,:;?!'\"+-*/=%$()[]") == 1


@pytest.mark.parametrize("text", ["\u00df" * 60, "\ufb03" * 60], ids=["two capitals", "three"])
def test_a_character_is_one_glyph(text):
    assert letter(text, 1).shape == (7, 6 * 60 - 1)
    assert page(text, text).shape[1:] == (744, 3)


@settings(max_examples=30)
@given(st.text(max_size=80), st.text(max_size=200))
def test_any_text_is_drawn(title, text):
    picture = page(title, text)
    assert picture.dtype == np.uint8
    assert picture.shape[1:] == (744, 3)
