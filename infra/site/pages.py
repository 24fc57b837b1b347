"""The pages of the repository, copied with their links, and its notebooks as pages.

A link to another page of the site leads there. A link to another file of the repository leads to the repository's
address, `Repository` in `[project.urls]` of pyproject.toml; while there is none, its text stands without a link.
"""

import re
import shutil
import sys
import tomllib
from os.path import normpath, relpath
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!\w+:|#)([^()#\s]+)(#[^()\s]*)?\)")
_GLUED = re.compile(r"^(?![-*] |[>|#\s]|\d+\. ).+\n(?:[-*]|\d+\.) .*", re.MULTILINE)
"""A list that follows a line of text at once: the repository's host shows a list, the site would show one paragraph."""
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_OUTSIDE = ("AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "infra/**/*.md")
"""Pages that are not below docs/."""


_INSTEAD = {
    "README.md": "index.md",
    "flows/presets/methods": "reference/methods.md",
    "schemas/datasets.py": "reference/datasets.md",
    "ragen/learning/metrics/glossary.py": "reference/metrics.md",
}
"""File or folder of the repository -> page of the site that says what it says."""


def write_pages(docs: Path) -> None:
    """Write all pages and figures into the folder of the site's input."""
    pages = {page.relative_to(ROOT).as_posix() for pattern in _OUTSIDE for page in ROOT.glob(pattern)}
    for source in (ROOT / "docs").rglob("*"):
        if source.suffix == ".md":
            pages.add(source.relative_to(ROOT).as_posix())
        elif source.suffix == ".ipynb":
            _write_notebook(source, docs / "notebooks")
        elif source.is_file():
            _copy(source, docs / source.relative_to(ROOT / "docs"))
    address = repository()
    for page in pages:
        target = docs / place(page)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(linked((ROOT / page).read_text(encoding="utf-8"), page, pages, address), encoding="utf-8")
    _write_decisions(docs / "adr")


def place(page: str) -> str:
    """Return the place in the site of a page of the repository: docs/ is its root; a README is its folder's index."""
    return re.sub(r"(^|/)README\.md$", r"\1index.md", page.removeprefix("docs/")).replace(".ipynb", ".md")


def repository() -> str | None:
    """Return the address below which a browser shows the repository's files; None if pyproject.toml has none."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    return f"{urls['Repository'].rstrip('/')}/blob/main" if "Repository" in urls else None


def linked(text: str, page: str, pages: set[str], address: str | None) -> str:
    """Return a page with the links that it has in the site; code blocks stay as they are.

    Args:
        text: The page's text.
        page: Its path in the repository.
        pages: Paths of all pages in the repository.
        address: Address of the repository's files.
    """

    def link(match: re.Match[str]) -> str:
        label, path, anchor = match[1], match[2], match[3] or ""
        file = normpath(f"{page}/../{path}")
        if not (ROOT / file).exists():
            sys.exit(f"{page}: a link to {path}, which does not exist")
        if f"{file}/README.md" in pages:
            file = f"{file}/README.md"
        if file in pages or file.endswith(".ipynb"):
            return f"[{label}]({relpath(place(file), f'{place(page)}/..')}{anchor})"
        if file in _INSTEAD:
            return f"[{label}]({relpath(_INSTEAD[file], f'{place(page)}/..')})"
        return f"[{label}]({address}/{file}{anchor})" if address else label

    prose, codes = _FENCE.split(text), _FENCE.findall(text)
    for glued in (match[0] for part in prose for match in _GLUED.finditer(part)):
        sys.exit(f"{page}: a list needs an empty line before it:\n{glued}")
    linked = [_LINK.sub(link, part) for part in prose]
    return "".join(part + code for part, code in zip(linked, [*codes, ""], strict=True))


def _write_decisions(folder: Path) -> None:
    """Write the list of decisions, by their titles."""
    titles = {page.name: page.read_text(encoding="utf-8").partition("\n")[0] for page in sorted(folder.glob("*.md"))}
    rows = "\n".join(f"- [{title.removeprefix('# ')}]({name})" for name, title in titles.items())
    text = f"# Decisions\n\nWhat was decided, why, and what was rejected; a page each.\n\n{rows}\n"
    (folder / "index.md").write_text(text, encoding="utf-8")


def _write_notebook(notebook: Path, folder: Path) -> None:
    """Write a notebook as a page, with its outputs, and its figures beside it."""
    from nbconvert import MarkdownExporter
    from nbconvert.writers import FilesWriter

    text, resources = MarkdownExporter().from_filename(
        str(notebook), resources={"output_files_dir": f"{notebook.stem}-figures"}
    )
    FilesWriter(build_directory=str(folder)).write(text, resources, notebook_name=notebook.stem)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
