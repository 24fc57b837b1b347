"""The documentation site: pages of the repository, pages made from the code, and `mkdocs.yml`, built by Zensical.

    python -m infra.site.build [FOLDER]      FOLDER/html; `build/site/html` by default

docs/, infra/, notebooks, code -> FOLDER/docs -> FOLDER/html. A link to a page or heading that does not exist, a page
that is not in the navigation, and an entry of the navigation without a page end it. The site asks nothing of a
network, and its search works in a folder opened as a file.

pages      the pages of the repository and its notebooks, with their links
reference  the pages made from code: commands, Python interface, datasets, metrics

Zensical is what the makers of MkDocs' theme Material, which is no longer developed, maintain in its place. It runs no
plugins, so all that is ours happens before it: its input is plain Markdown, which any generator reads.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from infra.site.pages import ROOT, write_pages
from infra.site.reference import write_reference

HERE = Path(__file__).parent


def main(folder: Path) -> None:
    """Build the site in a folder, of which `docs` and `html` are replaced."""
    docs = folder / "docs"
    for old in (docs, folder / "html", folder / ".cache"):
        shutil.rmtree(old, ignore_errors=True)
    docs.mkdir(parents=True)
    write_pages(docs)
    write_reference(docs)
    shutil.copytree(HERE / "static", docs / "static")
    config = yaml.safe_load((HERE / "mkdocs.yml").read_text(encoding="utf-8"))
    config["nav"] = list(expand(config["nav"], docs))
    check_navigation(config["nav"], docs)
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    write_html(folder)


def write_html(folder: Path) -> None:
    """Run Zensical on a folder with `mkdocs.yml` and pages; end the program if it has anything to complain of."""
    built = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=folder, check=False)
    if built.returncode:
        sys.exit(f"the site was not built: the lines above name the pages in {folder} and the links that lead nowhere")


def expand(nav: list[Any], docs: Path) -> Iterator[Any]:
    """Yield entries of a navigation, with the pages of a folder in place of one that ends in `/`, each index first."""
    for entry in nav:
        if isinstance(entry, dict):
            for title, pages in entry.items():
                yield {title: pages if isinstance(pages, str) else list(expand(pages, docs))}
        elif entry.endswith("/"):
            pages = sorted((docs / entry).rglob("*.md"), key=lambda page: (page.parent, page.name != "index.md", page))
            yield from (page.relative_to(docs).as_posix() for page in pages)
        else:
            yield entry


def check_navigation(nav: list[Any], docs: Path) -> None:
    """End the program if a page is not in the navigation, or an entry has no page."""
    entries = set(leaves(nav))
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    if pages - entries:
        sys.exit(f"not in the navigation: {', '.join(sorted(pages - entries))}; add them to infra/site/mkdocs.yml")
    if entries - pages:
        sys.exit(f"no such page: {', '.join(sorted(entries - pages))}, of the navigation in infra/site/mkdocs.yml")


def leaves(nav: list[Any]) -> Iterator[str]:
    """Yield the pages of a navigation."""
    for entry in nav:
        if isinstance(entry, dict):
            for pages in entry.values():
                yield from [pages] if isinstance(pages, str) else leaves(pages)
        else:
            yield entry


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site")
