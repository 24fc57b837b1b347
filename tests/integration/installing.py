"""What `pip install` brings into an environment, linked from the libraries of this one: nothing is downloaded.

lines of `pip install` -> distributions, by the metadata of each -> links to their packages
"""

import re
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_INSTALL = re.compile(r"pip install (--no-deps )?'?([^'\s]+)'?")


def install(lines: str, site_packages: Path) -> None:
    """Install what the lines name; of a distribution that is there, such as the wheel, only its requirements.

    Raises:
        PackageNotFoundError: If this environment lacks a distribution.
    """
    there = {canonicalize_name(one.name): one for one in distributions(path=[str(site_packages)])}
    for has_no_requirements, text in _INSTALL.findall(lines):
        waiting, done = [Requirement(text)], set()
        while waiting:
            wanted = waiting.pop()
            name = canonicalize_name(wanted.name)
            if name not in there:
                there[name] = distribution(name)
                _link(there[name], site_packages)
            for extra in {"", *wanted.extras} - {extra for one, extra in done if one == name}:
                done.add((name, extra))
                if not has_no_requirements:
                    waiting += _requirements(there[name], extra)


def _requirements(one: Distribution, extra: str) -> list[Requirement]:
    requirements = map(Requirement, one.requires or ())
    return [needed for needed in requirements if needed.marker is None or needed.marker.evaluate({"extra": extra})]


def _link(one: Distribution, site_packages: Path) -> None:
    """Link whole packages, and each file of what distributions may have in common; no scripts."""
    files = [file for file in one.files or () if ".." not in file.parts]
    packages = {file.parts[0] for file in files if file.parts[1:] == ("__init__.py",)}
    for name in packages | {str(file) for file in files if file.parts[0] not in packages}:
        source, place = Path(str(one.locate_file(name))), site_packages / name
        if source.exists():  # compiled files may be gone
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(source)
