"""The catalogue of WebShop's original files, which the user provides: none of them is part of this project.

    folder/items_shuffle*.json     products
    folder/items_ins_v2*.json      their attributes, and a synthetic wish for each
    folder/items_human_ins.json    instructions by people (optional)

Unusable entries are skipped and reported with the reason; everything else is processed as in WebShop.
"""

import json
import re
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import quoted
from starpo.ragen.envs.webshop.product import Product, Wish

_PATTERNS = {"products": "items_shuffle*.json", "wishes": "items_ins_v2*.json", "human": "items_human_ins.json"}
_MAX_NUMBER, _MAX_VALUE = 10, 300
_USUAL_PRICE = 100.0
_AMOUNT = re.compile(r"\d[\d,]*(?:\.\d+)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\s]+")
_UNNAMEABLE = re.compile(r"[\[\]\s]|\|\|")
_SEPARATOR = re.compile(r"\|{2,}")
_UNCLICKABLE = str.maketrans({"[": "(", "]": ")"})
_BLOCK = 1 << 20


class OmittedEntry(NamedTuple):
    """An entry left out of a catalogue, and the reason."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what} ({self.why})"


class _UnusableError(ValueError):
    """Raised for a product or a wish that cannot be used, with the reason."""


def files_digest(folder: str) -> str:
    """Return a digest of the bytes of a catalogue's files, 16 hexadecimal digits.

    Raises:
        ConfigError: If a file is missing or ambiguous.
    """
    total = blake2b(digest_size=8)
    for role, path in _files(folder).items():
        facts = path.stat()
        total.update(f"{role} {_file_digest(path, facts.st_size, facts.st_mtime_ns)}\n".encode())
    return total.hexdigest()


def read_products(folder: str, num_products: int | None) -> tuple[list[Product], list[OmittedEntry]]:
    """Read the products and the wishes for them.

    Args:
        folder: Folder of the files.
        num_products: Number of products to take from the start of the file; None for all.

    Returns:
        The products in file order, and the entries left out.

    Raises:
        ConfigError: If a file is missing or not valid JSON, or no product can be used.
    """
    files = _files(folder)
    listed = _read(files["products"], list)[:num_products]
    wishes = _read(files["wishes"], dict)
    human = _read(files["human"], dict) if "human" in files else {}
    products: dict[str, Product] = {}
    refused: list[OmittedEntry] = []
    for number, item in enumerate(listed):
        name = item.get("asin") if isinstance(item, dict) else None
        what = name if isinstance(name, str) and name else f"product {number}"
        try:
            product = _product(item, wishes.get(what))
            if product.asin.lower() in products:
                raise _UnusableError("an earlier product has the same asin")
        except _UnusableError as error:
            refused.append(OmittedEntry(quoted(what), str(error)))
            continue
        usable, unusable = _human_wishes(human.get(what, []))
        refused += [OmittedEntry(f"wish {place} for {quoted(what)}", why) for place, why in unusable]
        products[product.asin.lower()] = replace(product, human_wishes=usable)
    if not products:
        raise ConfigError(
            f"{files['products']}: none of {len(listed)} products can be used: {', '.join(map(str, refused[:5]))}"
        )
    return list(products.values()), refused


def _files(folder: str) -> dict[str, Path]:
    """Find the files, by role."""
    files = {}
    for role, pattern in _PATTERNS.items():
        matches = sorted(Path(folder).expanduser().glob(pattern))
        if len(matches) > 1:
            names = ", ".join(path.name for path in matches)
            raise ConfigError(f"webshop folder '{folder}' has {names}; leave one file of the form {pattern} in it")
        if not matches and role != "human":
            raise ConfigError(
                f"webshop folder '{folder}' has no file {pattern}; give the folder of WebShop's data files, or leave "
                "folder out for the synthetic catalogue"
            )
        if matches:
            files[role] = matches[0]
    return files


@lru_cache(64)
def _file_digest(path: Path, size: int, changed_ns: int) -> str:
    """Return a digest of the bytes, cached by size and modification time."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _read(path: Path, kind: type) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({error}); download it again") from error
    if not isinstance(content, kind):
        raise ConfigError(f"{path} holds a {type(content).__name__}, expected a {kind.__name__}: is it WebShop's?")
    return content


def _product(item: Any, wished: Any) -> Product:
    if not isinstance(item, dict):
        raise _UnusableError("no JSON object")
    asin = _text(item, "asin")
    if asin == "nan" or len(asin) > _MAX_NUMBER or _UNNAMEABLE.search(asin):
        raise _UnusableError(f"asin must have at most {_MAX_NUMBER} characters, without blanks, brackets and ||")
    wished = wished if isinstance(wished, dict) else {}
    bullets = item.get("small_description") or []
    return Product(
        asin=asin,
        title=_text(item, "name"),
        query=_text(item, "query").lower(),
        categories=tuple(part.strip() for part in _text(item, "product_category").split("\u203a")),
        price_range=_price_range(item.get("pricing")),
        description=_clean(item.get("full_description") or ""),
        bullets=_texts(bullets if isinstance(bullets, list) else [bullets]),
        attributes=_texts(_list(wished, "attributes")),
        options=_options(item.get("customization_options")),
        wish=_wish(wished),
    )


def _wish(wished: dict[str, Any]) -> Wish | None:
    text, attributes = _clean(wished.get("instruction")), _texts(_list(wished, "instruction_attributes"))
    return Wish(text, attributes) if text and attributes else None


def _human_wishes(listed: Any) -> tuple[tuple[Wish, ...], list[tuple[int, str]]]:
    """Return the usable wishes, and position and fault of each of the others."""
    wishes, faults = [], []
    for place, item in enumerate(listed if isinstance(listed, list) else [listed]):
        try:
            wishes.append(_human_wish(item))
        except _UnusableError as error:
            faults.append((place, str(error)))
    return tuple(wishes), faults


def _human_wish(item: Any) -> Wish:
    facts = item if isinstance(item, dict) else {}
    text, attributes = _clean(facts.get("instruction")).strip("."), _texts(_list(facts, "instruction_attributes"))
    if not text or not attributes:
        raise _UnusableError("it has no instruction, or no attributes")
    options = facts.get("instruction_options")
    values = list(options.values()) if isinstance(options, dict) else _list(facts, "instruction_options")
    return Wish(text, attributes, _texts(values))


def _price_range(pricing: Any) -> tuple[float, float]:
    """Parse `$12.50` or `$10.00$20.00`; 100 if missing, as in WebShop."""
    if pricing is None or pricing in ("", []):
        return _USUAL_PRICE, _USUAL_PRICE
    amounts = [float(part.replace(",", "")) for part in _AMOUNT.findall(pricing)] if isinstance(pricing, str) else []
    if not amounts:
        raise _UnusableError(f"pricing {quoted(str(pricing))} is not an amount of dollars")
    return min(amounts[:2]), max(amounts[:2])


def _options(listed: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not listed:
        return ()
    if not isinstance(listed, dict):
        raise _UnusableError("customization_options is not a JSON object")
    options = []
    for name, contents in listed.items():
        if not contents:
            continue
        if not isinstance(contents, list):
            raise _UnusableError(f"customization_options.{name} is not a list")
        values = [_text_of_value(content, name) for content in contents]
        written = (_clean(_SEPARATOR.sub("|", value.replace("/", " | ")))[:_MAX_VALUE] for value in values)
        unique = tuple(dict.fromkeys(value.strip().lower().translate(_UNCLICKABLE) for value in written))
        options.append((_clean(name).lower(), unique))
    return tuple(option for option in options if option[1])


def _text_of_value(content: Any, option: str) -> str:
    value = content.get("value") if isinstance(content, dict) else None
    if not isinstance(value, str) or not _clean(value):
        raise _UnusableError(f"customization_options.{option} has a value without text")
    return value


def _text(item: dict[str, Any], field: str) -> str:
    value = item.get(field)
    if not isinstance(value, str) or not _clean(value):
        raise _UnusableError(f"{field} is missing")
    return _clean(value)


def _list(facts: dict[str, Any], field: str) -> list[Any]:
    values = facts.get(field) or []
    if not isinstance(values, list):
        raise _UnusableError(f"{field} is not a list")
    return values


def _texts(values: list[Any]) -> tuple[str, ...]:
    return tuple(text for value in values if (text := _clean(value)))


def _clean(text: Any) -> str:
    """Reduce text to one line without control characters; "" for anything but text."""
    return _CONTROL.sub(" ", text).strip() if isinstance(text, str) else ""
