"""Files that documentation pages link or name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_links_and_tests_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [page.parent / link for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text)]
    named = [ROOT / path for path in re.findall(r"\btests/[\w/]+\.py", text)]
    assert [str(path) for path in (*links, *named) if not path.exists()] == []
