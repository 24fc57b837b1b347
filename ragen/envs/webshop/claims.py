"""Claims about a page of the shop in the form that demonstrations use, for compact observations: which words of a title
are requested, whether a price is within the limit, and which value of an option is requested."""

import re
from functools import lru_cache
from typing import NamedTuple

from starpo.ragen.envs.claim import Claim
from starpo.ragen.envs.webshop.search import words

_INSTRUCTION = re.compile(r"(?P<asked>.+?)(?: under (?P<limit>\d+))?")
_RESULT = re.compile(r"\[(?P<label>\d+)\] (?P<title>.+) \$(?P<price>\d+(?:\.\d+)?)(?: to \$[\d.]+)?")
_OPTION = re.compile(r"(?P<name>[^\[\]]+) (?P<values>\[[^\[\]]+\](?: \[[^\[\]]+\])*)")
_VALUE = re.compile(r"\[([^\[\]]+)\]")


class SeenPage(NamedTuple):
    """Content of a compact observation: for each product its requested words, its price, and `ok` or `dear`; for each
    option the requested value, or `none`."""

    results: dict[str, tuple[str, ...]]
    options: dict[str, str]


def claims(observation: str, reasoning: str) -> list[Claim]:
    """Return the checkable claims in the reasoning, in order; [] if observation or reasoning cannot be parsed."""
    page = read_page(observation)
    found = []
    for line in reasoning.splitlines() if page.results else ():
        label, *said = line.split() or [""]
        if label in page.results and said[-1:] in (["ok"], ["dear"]):
            *wanted, price = page.results[label]
            found.append(_claim(f"words of {label}", said[:-2], wanted))
            found.append(_claim(f"price of {label}", said[-2:], price.split()))
    for name, truth in page.options.items():
        if (about := re.search(rf"(?:^| ){re.escape(name)} (\w+)", reasoning)) is not None:
            found.append(Claim(f"option {name}", about[1], about[1] == truth.split()[0], truth))
    return found


def _claim(about: str, said: list[str], truth: list[str]) -> Claim:
    return Claim(about, " ".join(said) or "none", said == truth, " ".join(truth) or "none")


@lru_cache(65_536)
def read_page(observation: str) -> SeenPage:
    """Parse the results or the options of a compact observation; empty if it has none."""
    head, *lines = observation.split("\n")
    instruction = _INSTRUCTION.fullmatch(head)
    results: dict[str, tuple[str, ...]] = {}
    options: dict[str, str] = {}
    if instruction is None:
        return SeenPage(results, options)
    asked, limit = words(instruction["asked"]), float(instruction["limit"] or "inf")
    for line in lines:
        if result := _RESULT.fullmatch(line):
            found = dict.fromkeys(word for word in words(result["title"]) if word in asked)
            verdict = "ok" if float(result["price"]) <= limit else "dear"
            results[result["label"]] = (*found, f"{float(result['price']):g} {verdict}")
        elif option := _OPTION.fullmatch(line):
            values = [value for value in _VALUE.findall(option["values"]) if set(words(value)) <= set(asked)]
            options[option["name"]] = values[0] if values else "none"
    return SeenPage(results, options)
