"""What `pip install` brings into an environment, linked from the libraries of this one: nothing is downloaded.

lines of `pip install` -> distributions, by the metadata of each -> links to their files
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
        waiting, seen = [Requirement(text)], set()
        while waiting:
            wanted = waiting.pop()
            name = canonicalize_name(wanted.name)
            if name not in there:
                there[name] = distribution(name)
                _link(there[name], site_packages)
            for extra in {"", *wanted.extras} - {extra for one, extra in seen if one == name}:
                seen.add((name, extra))
                if not has_no_requirements:
                    waiting += _requirements(there[name], extra)


def _requirements(one: Distribution, extra: str) -> list[Requirement]:
    found = map(Requirement, one.requires or ())
    return [needed for needed in found if needed.marker is None or needed.marker.evaluate({"extra": extra})]


def _link(one: Distribution, site_packages: Path) -> None:
    for file in one.files or ():
        source, place = Path(file.locate()), site_packages / file
        if ".." not in file.parts and source.is_file():  # no scripts; compiled files may be gone
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(source)
