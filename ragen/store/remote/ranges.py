"""`RangeFile`: a file on object storage of which readers fetch exactly the ranges they need.

manifest -> Store.parts -> RangeFile -> Parquet reader: the footer, and the requested columns
"""

import io
from collections.abc import Callable


class RangeFile(io.RawIOBase):
    """A file that can be read from any position; every read is one request for exactly that range.

    There is no read-ahead, which would fetch adjacent columns as well, and opening the file fetches nothing.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], size_bytes: int) -> None:
        """`read_range(start, end)` returns the bytes from `start` to before `end`; `size_bytes` is the file's size."""
        self._read_range = read_range
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        """Whether the file can be read: always."""
        return True

    def seekable(self) -> bool:
        """Whether the file supports random access: always."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Change the position; see `io.IOBase.seek`."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer, or as much of it as is left of the file.

        Raises:
            OSError: If fewer bytes were received than expected.
        """
        wanted = max(0, min(len(buffer), self._size_bytes - self._position))
        data = self._read_range(self._position, self._position + wanted) if wanted else b""
        if len(data) != wanted:
            raise OSError(f"{len(data)} bytes at {self._position}, expected {wanted}")
        buffer[:wanted] = data
        self._position += wanted
        return wanted
