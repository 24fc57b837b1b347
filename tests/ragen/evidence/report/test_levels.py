"""Panels of a curriculum: a line per level, as measured; none without one."""

from starpo.ragen.evidence.report.levels import level_panels


def test_levels_have_shares_and_success() -> None:
    series = {
        "curriculum/share/easy": {0: 0.5, 1: 0.25},
        "curriculum/share/hard": {0: 0.5, 1: 0.75},
        "curriculum/success/easy": {1: 0.75},
        "rollout/success_rate/easy": {0: 0.5},
    }
    shares, success = level_panels(series)
    assert [(line.label, line.raw) for line in shares.lines] == [
        ("easy", [(0, 0.5), (1, 0.25)]),
        ("hard", [(0, 0.5), (1, 0.75)]),
    ]
    assert [(line.label, line.raw, line.smooth) for line in success.lines] == [("easy", [(1, 0.75)], [])]
    assert shares.is_share
    assert success.is_share


def test_no_curriculum_has_no_panel() -> None:
    assert level_panels({"rollout/success_rate": {0: 0.5}}) == []
