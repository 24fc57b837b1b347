import pytest

from starpo.flows.console.reasons import merged_reasons


def test_reasons_differing_in_numbers_are_merged():
    given = [
        "kept: number 2 of 4 by std 0.5; keep = 0.5 keeps 2 of 4 groups",
        "dropped: zero variance, all 4 valid returns are -2.5",
        "kept: number 1 of 4 by std 1e-05; keep = 0.5 keeps 2 of 4 groups",
        "dropped: zero variance, all 3 valid returns are -10",
    ]
    assert merged_reasons(given) == [
        (2, "kept: number 1 and 2 of 4 by std 1e-05 and 0.5; keep = 0.5 keeps 2 of 4 groups"),
        (2, "dropped: zero variance, all 3 and 4 valid returns are -10 and -2.5"),
    ]


@pytest.mark.parametrize(
    ("places", "listed"),
    [
        ([8, 1], "1 and 8"),
        ([2, 1, 3], "1 to 3"),
        ([1, 5, 8], "1, 5 and 8"),
        ([1, 2, 3, 4, 5, 7, 8], "1 to 8 (not all)"),
    ],
)
def test_places_with_gaps_are_no_range(places, listed):
    given = [f"dropped: number {place} of 8" for place in places]
    assert merged_reasons(given) == [(len(places), f"dropped: number {listed} of 8")]


def test_different_words_are_different_reasons():
    assert merged_reasons(["kept: no filter", "dropped", "kept: no filter"]) == [(2, "kept: no filter"), (1, "dropped")]
    assert merged_reasons([]) == []
