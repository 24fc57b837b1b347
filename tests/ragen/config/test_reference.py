from pathlib import Path

from starpo.ragen.config.reference import page


def test_page_matches_the_models() -> None:
    stored = (Path(__file__).parents[3] / "docs" / "settings.md").read_text(encoding="utf-8")
    assert stored == page(), "docs/settings.md is out of date: run `make settings`, and review what changed"
