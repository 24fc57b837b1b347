"""Contents of a picture, read from its SVG."""

import re
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: str) -> list[str]:
    """Return a picture's texts in drawing order."""
    return ["".join(element.itertext()) for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def lines(picture: str, gid: str) -> list[list[tuple[float, float]]]:
    """Return the points of each line with this id: x to the right, y downwards."""
    points = []
    for group in ElementTree.fromstring(picture).iter(f"{SVG}g"):
        if group.get("id") == gid:
            path = next(group.iter(f"{SVG}path")).get("d", "")
            points.append([(float(x), float(y)) for x, y in re.findall(r"[ML] ([\d.-]+) ([\d.-]+)", path)])
    return points
