"""Words of the synthetic catalogue, few and short, so that each is one token of the embedded policy; also colours."""

from typing import NamedTuple


class Department(NamedTuple):
    """A department of the shop.

    Attributes:
        name: Widest category of its products.
        nouns: Kinds of products; each is a category too.
        qualities: Qualities that may occur in a title.
        hidden: Attributes that only the page Features shows.
        options: Name and values of each option.
    """

    name: str
    nouns: tuple[str, ...]
    qualities: tuple[str, ...]
    hidden: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]


_COLOR = ("color", ("red", "blue", "green", "black", "white", "pink", "brown", "grey"))
_SIZE = ("size", ("tiny", "small", "medium", "large", "huge"))

DEPARTMENTS: tuple[Department, ...] = (
    Department(
        "clothing",
        ("coat", "shirt", "dress", "skirt", "scarf", "jacket"),
        ("soft", "warm", "slim", "loose", "plain", "striped", "wool", "cotton"),
        ("washable", "breathable", "stretchy"),
        (_COLOR, _SIZE),
    ),
    Department(
        "shoes",
        ("boot", "sandal", "sneaker", "slipper", "loafer", "clog"),
        ("light", "sturdy", "flat", "wide", "plain", "padded", "leather", "canvas"),
        ("waterproof", "slipless", "breathable"),
        (_COLOR, _SIZE),
    ),
    Department(
        "home",
        ("lamp", "rug", "chair", "pillow", "clock", "mirror"),
        ("round", "square", "modern", "rustic", "light", "sturdy", "oak", "bamboo"),
        ("foldable", "stainless", "handmade"),
        (_COLOR, ("style", ("classic", "nordic", "retro", "floral"))),
    ),
    Department(
        "kitchen",
        ("mug", "pan", "kettle", "bowl", "knife", "jar"),
        ("deep", "shallow", "round", "sturdy", "modern", "plain", "steel", "glass"),
        ("washable", "stainless", "stackable"),
        (_COLOR, ("set", ("single", "pair", "dozen"))),
    ),
    Department(
        "grocery",
        ("tea", "coffee", "cookie", "candy", "sauce", "cereal"),
        ("organic", "crunchy", "sweet", "salty", "mild", "strong", "raw", "smoked"),
        ("vegan", "kosher", "gluten free"),
        (("flavor", ("mint", "lemon", "vanilla", "cherry", "ginger", "honey")), ("set", ("single", "pair", "dozen"))),
    ),
    Department(
        "beauty",
        ("soap", "lotion", "shampoo", "brush", "perfume", "mask"),
        ("mild", "strong", "light", "rich", "organic", "clear", "clay", "creamy"),
        ("vegan", "travel", "hypoallergenic"),
        (("scent", ("rose", "lavender", "citrus", "musk")), _SIZE),
    ),
    Department(
        "electronics",
        ("speaker", "charger", "headset", "keyboard", "camera", "cable"),
        ("wireless", "compact", "fast", "quiet", "modern", "sturdy", "carbon", "titanium"),
        ("waterproof", "rechargeable", "foldable"),
        (_COLOR, ("plug", ("usb", "mini", "flat", "coaxial"))),
    ),
    Department(
        "outdoor",
        ("tent", "backpack", "bottle", "hammock", "rope", "torch"),
        ("light", "sturdy", "compact", "padded", "deep", "bright", "nylon", "steel"),
        ("waterproof", "foldable", "insulated"),
        (_COLOR, _SIZE),
    ),
)

MATERIALS = frozenset(
    ["wool", "cotton", "leather", "canvas", "oak", "bamboo", "steel", "glass", "clay", "carbon", "titanium", "nylon"]
)

NOUNS = MATERIALS | {noun for department in DEPARTMENTS for noun in department.nouns}
"""Nouns that occur in titles of the synthetic catalogue."""

_COLOUR_NAMES = (
    "amber aqua apricot beige black blue bronze brown burgundy camel champagne charcoal chocolate copper coral cream "
    "crimson cyan emerald fuchsia gold gray green grey indigo ivory jade khaki lavender lilac lime magenta maroon "
    "mauve mint multicolor mustard navy nude olive orange orchid peach pink plum purple red rose ruby rust salmon sand "
    "sapphire scarlet silver sienna sky tan taupe teal turquoise violet white wine yellow"
)
COLOURS: tuple[str, ...] = tuple(_COLOUR_NAMES.split())
"""Names of colours, in the order in which `score.plain_colour` searches for them."""
