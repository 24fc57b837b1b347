from starpo.flows.console.reasons import merged_reasons


def test_what_differs_in_its_numbers_is_said_once():
    given = [
        "kept: number 2 of 4 by std 0.5; keep = 0.5 keeps 2 of 4 groups",
        "dropped: zero variance, all 4 valid returns are -2.5",
        "kept: number 1 of 4 by std 1e-05; keep = 0.5 keeps 2 of 4 groups",
        "dropped: zero variance, all 3 valid returns are -10",
    ]
    assert merged_reasons(given) == [
        (2, "kept: number 1 to 2 of 4 by std 1e-05 to 0.5; keep = 0.5 keeps 2 of 4 groups"),
        (2, "dropped: zero variance, all 3 to 4 valid returns are -10 to -2.5"),
    ]


def test_other_words_are_another_reason():
    assert merged_reasons(["kept: no filter", "dropped", "kept: no filter"]) == [(2, "kept: no filter"), (1, "dropped")]
    assert merged_reasons([]) == []
