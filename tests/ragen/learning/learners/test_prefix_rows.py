"""Rows hold every prefix once, and every token follows the same tokens as in its segment."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.learners.data.even_rows import even_limit
from starpo.ragen.learning.learners.data.prefix_rows import prefix_rows

SEGMENTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=30)


def rows_of(segments, max_tokens):
    return prefix_rows([np.array(segment) for segment in segments], np.arange(len(segments)), max_tokens)


def sees(row):
    places, ends = np.arange(len(row)), row.ends()
    return (places[None, :] <= places[:, None]) & (places[:, None] < ends[None, :])


@given(SEGMENTS, st.integers(0, 30))
def test_each_segment_sees_only_its_past(segments, max_tokens):
    rows = rows_of(segments, max_tokens)
    assert sorted(index for row in rows for index, _ in row.segments) == list(range(len(segments)))
    for row in rows:
        assert len(row) <= max_tokens or len(row.branches) == 1
        tokens, positions, visible = np.array(row.token_ids), row.positions(), sees(row)
        for index, branch in row.segments:
            _, places = row.branches[branch]
            assert tokens[places].tolist() == segments[index]
            assert positions[places].tolist() == list(range(len(places)))
            for depth, place in enumerate(places):
                assert np.flatnonzero(visible[place]).tolist() == sorted(places[: depth + 1].tolist())


@pytest.mark.ci
@given(SEGMENTS)
def test_single_row_shares_every_prefix(segments):
    (row,) = rows_of(segments, 10_000)
    beginnings = {tuple(segment[:end]) for segment in segments for end in range(1, len(segment) + 1)}
    assert len(row) == len(beginnings)


@pytest.mark.ci
@given(SEGMENTS)
def test_zero_row_tokens_merges_only_duplicates(segments):
    rows = rows_of(segments, 0)
    assert sorted(tuple(row.token_ids) for row in rows) == sorted(set(map(tuple, segments)))
    assert all(row.is_plain for row in rows)


@pytest.mark.parametrize("max_tokens", [0, 4, 100])
def test_only_requested_segments_are_laid_out(max_tokens):
    token_ids = [np.array(ids) for ids in ([5, 6], [5, 7], [5, 6], [8])]
    rows = prefix_rows(token_ids, np.array([1, 2]), max_tokens)
    assert sorted(index for row in rows for index, _ in row.segments) == [1, 2]


def test_parts_get_equally_many_rows():
    segments = [[0] * 75 + [number] * 80 for number in range(1, 17)]
    assert [len(row) for row in rows_of(segments, 576)] == [555, 555, 395]
    token_ids = [np.array(segment) for segment in segments]
    assert [len(row) for row in rows_of(segments, even_limit(token_ids, 576, 2))] == [395] * 4


@given(SEGMENTS, st.integers(0, 30), st.integers(1, 4))
def test_even_limit_adds_few_rows(segments, max_tokens, num_parts):
    limit = even_limit([np.array(segment) for segment in segments], max_tokens, num_parts)
    num_rows = len(rows_of(segments, max_tokens))
    assert limit <= max_tokens
    assert num_rows <= len(rows_of(segments, limit)) < num_rows + num_parts
