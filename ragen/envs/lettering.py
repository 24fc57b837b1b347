"""Text for images: capitals, digits and punctuation in a 5 x 7 dot-matrix font, using numpy alone."""

import numpy as np

_ROWS = 7
_COLUMNS = 5
_GLYPHS = {
    "A": "0E11111F111111",
    "B": "1E11111E11111E",
    "C": "0E11101010110E",
    "D": "1E11111111111E",
    "E": "1F10101E10101F",
    "F": "1F10101E101010",
    "G": "0E11101711110F",
    "H": "1111111F111111",
    "I": "0E04040404040E",
    "J": "0702020202120C",
    "K": "11121418141211",
    "L": "1010101010101F",
    "M": "111B1515111111",
    "N": "11111915131111",
    "O": "0E11111111110E",
    "P": "1E11111E101010",
    "Q": "0E11111115120D",
    "R": "1E11111E141211",
    "S": "0F10100E01011E",
    "T": "1F040404040404",
    "U": "1111111111110E",
    "V": "11111111110A04",
    "W": "11111115151B11",
    "X": "11110A040A1111",
    "Y": "11110A04040404",
    "Z": "1F01020408101F",
    "0": "0E11131519110E",
    "1": "040C040404040E",
    "2": "0E11010204081F",
    "3": "1F02040201110E",
    "4": "02060A121F0202",
    "5": "1F101E0101110E",
    "6": "0608101E11110E",
    "7": "1F010204080808",
    "8": "0E11110E11110E",
    "9": "0E11110F01020C",
    ".": "00000000000C0C",
    ",": "000000000C0408",
    ":": "000C0C000C0C00",
    ";": "000C0C000C0408",
    "?": "0E110102040004",
    "!": "04040404040004",
    "'": "0C040800000000",
    '"': "0A0A0A00000000",
    "+": "0004041F040400",
    "-": "0000001F000000",
    "*": "0004150E150400",
    "/": "01010204081010",
    "=": "00001F001F0000",
    "%": "18190204081303",
    "$": "040F140E051E04",
    "(": "02040808080402",
    ")": "08040202020408",
    "[": "0E08080808080E",
    "]": "0E02020202020E",
    " ": "00000000000000",
}
"""Character -> rows from top to bottom, two hexadecimal digits each; the low five bits are the dots."""


def letter(text: str, scale: int) -> np.ndarray:
    """Render a line of text.

    Args:
        text: Non-empty; letters become capitals, characters without a glyph become spaces.
        scale: Pixels per dot.

    Returns:
        bool [7 * scale, (6 * len(text) - 1) * scale], True where there is ink.
    """
    rows = [_GLYPHS.get(character.upper(), _GLYPHS[" "]) for character in text]  # upper() makes a sharp s two letters
    bits = [np.unpackbits(np.frombuffer(bytes.fromhex(glyph), np.uint8)) for glyph in rows]
    glyphs = [glyph.reshape(_ROWS, 8)[:, 8 - _COLUMNS - 1 :] for glyph in bits]
    dots = np.hstack(glyphs)[:, 1:].astype(bool)  # drop the empty column before the first glyph
    return dots.repeat(scale, axis=0).repeat(scale, axis=1)
