"""The documentation site: whole, strict, and silent on the network."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from infra.site import build
from infra.site.pages import ROOT, linked
from starpo.flows.presets import METHODS

pytest.importorskip("zensical", reason="pip install 'starpo[docs]'")
LOADED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"']?(https?:)?//", re.IGNORECASE)


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build.main(folder)
    return folder / "html"


def test_all_pages_are_built(html: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert {str(page) for page in pages if not (html / page).exists()} == set()


def test_reference_is_from_code(html: Path) -> None:
    commands, datasets, interface, metrics, methods = (
        (html / "reference" / f"{name}.html").read_text(encoding="utf-8")
        for name in ("commands/look-at-runs", "datasets", "python", "metrics", "methods")
    )
    assert "starpo lineage" in commands
    assert "behaviour_logprobs" in datasets
    assert "Run.load_policy" in interface
    assert "rollout/success_rate" in metrics
    assert [name for name in METHODS.names() if f"<code>{name}</code>" not in methods] == []
    assert "clip_low = 0.0003" in methods


def test_pages_load_nothing_from_network(html: Path) -> None:
    """Links lead elsewhere; scripts, styles, fonts and pictures are the site's own."""
    pages = {page: page.read_text(encoding="utf-8") for page in [*html.rglob("*.html"), *html.rglob("*.css")]}
    assert [str(page) for page, text in pages.items() if LOADED.search(text) or "url(http" in text] == []
    assert "unpkg.com/iframe-worker" not in (html / "index.html").read_text(encoding="utf-8")


def test_search_works_in_opened_folder(html: Path, chromium: Any) -> None:
    """No server, no network: a browser shows what was found in the index beside the page."""
    chromium.get((html / "index.html").as_uri())
    button = chromium.find_element("css selector", ".md-search__button, [for=__search]")
    chromium.execute_script("arguments[0].click()", button)
    dialog = chromium.switch_to.active_element
    dialog.send_keys("quarantine")
    text = "return document.activeElement.shadowRoot?.textContent ?? ''"
    until = time.monotonic() + 30
    while not re.search(r"[1-9]\d* results", chromium.execute_script(text)):
        assert time.monotonic() < until, chromium.execute_script(text)
        time.sleep(0.1)


@pytest.mark.parametrize("link", ["nothing.md", "other.md#nothing"])
def test_dead_link_ends_build(link: str, tmp_path: Path) -> None:
    (tmp_path / "mkdocs.yml").write_text("site_name: StarPO\nnav: [index.md, other.md]\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Home\n\n[a link]({link})\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n\n## Something\n")
    with pytest.raises(SystemExit, match="links that lead nowhere"):
        build.write_html(tmp_path)


def test_navigation_and_pages_are_equal(tmp_path: Path) -> None:
    for name in ("index.md", "lost.md"):
        (tmp_path / name).write_text(f"# {name}\n")
    with pytest.raises(SystemExit, match=r"not in the navigation: lost\.md"):
        build.check_navigation([{"Home": "index.md"}], tmp_path)
    with pytest.raises(SystemExit, match=r"no such page: gone\.md"):
        build.check_navigation([{"All": ["index.md", "lost.md", "gone.md"]}], tmp_path)


@pytest.mark.parametrize(
    ("link", "address", "result"),
    [
        (
            "[a](../adr/0001-artifacts-are-named-by-their-work.md#why)",
            None,
            "[a](../adr/0001-artifacts-are-named-by-their-work.md#why)",
        ),
        ("[a](../../infra)", None, "[a](../infra/index.md)"),
        ("[a](../../README.md)", None, "[a](../index.md)"),
        ("[a](../../schemas/datasets.py)", None, "[a](../reference/datasets.md)"),
        ("[a](../notebooks/train.ipynb)", None, "[a](../notebooks/train.md)"),
        ("[a](../../pyproject.toml)", None, "a"),
        (
            "[a](../../pyproject.toml)",
            "https://host/starpo/blob/main",
            "[a](https://host/starpo/blob/main/pyproject.toml)",
        ),
        ("```\n[a](../../pyproject.toml)\n```", None, "```\n[a](../../pyproject.toml)\n```"),
        ("[a](https://host/x.md)", None, "[a](https://host/x.md)"),
    ],
)
def test_links_lead_to_site(link: str, address: str | None, result: str) -> None:
    pages = {"docs/understand/keys.md", "docs/adr/0001-artifacts-are-named-by-their-work.md", "infra/README.md"}
    assert linked(link, "docs/understand/keys.md", pages, address) == result


def test_link_to_nothing_ends_build() -> None:
    with pytest.raises(SystemExit, match=r"docs/a\.md: a link to gone\.py, which does not exist"):
        linked("[a](gone.py)", "docs/a.md", set(), None)


def test_list_without_gap_ends_build() -> None:
    with pytest.raises(SystemExit, match=r"docs/a\.md: a list needs an empty line before it:\nthese:\n- one"):
        linked("A line.\n\nthese:\n- one\n- two\n", "docs/a.md", set(), None)
    assert linked("these:\n\n- one\n- two\n  and more\n- three\n", "docs/a.md", set(), None)
