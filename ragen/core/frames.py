"""Messages between processes: frames of a kind (1 byte), a length (8 bytes, little-endian) and a payload."""

import struct
from typing import IO, Any

_HEADER = struct.Struct("<cQ")


def write_frame(stream: IO[bytes], kind: bytes, payload: Any) -> None:
    """Send one message; the payload is bytes or a buffer, such as an Arrow buffer."""
    stream.write(_HEADER.pack(kind, len(payload)))
    stream.write(payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[bytes, bytes]:
    """Receive one message: its kind and its payload.

    Raises:
        EOFError: If the other end has closed the stream.
    """
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise EOFError
    kind, size = _HEADER.unpack(header)
    payload = stream.read(size)
    if len(payload) < size:
        raise EOFError
    return kind, payload
