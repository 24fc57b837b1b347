"""What is in a picture, read from its SVG."""

import re
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    """Its texts, in the order in which they were drawn."""
    return ["".join(element.itertext()) for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def lines(picture: str, gid: str) -> list[list[tuple[float, float]]]:
    """Points of the lines of this name: x to the right, y downwards."""
    found = []
    for group in ElementTree.fromstring(picture).iter(f"{SVG}g"):
        if group.get("id") == gid:
            path = next(group.iter(f"{SVG}path")).get("d", "")
            found.append([(float(x), float(y)) for x, y in re.findall(r"[ML] ([\d.-]+) ([\d.-]+)", path)])
    return found
