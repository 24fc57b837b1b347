"""`RangeFile`: a file on object storage of which readers fetch the ranges they want, and nothing around them.

manifest -> Store.parts -> RangeFile -> Parquet reader: the footer, and the columns asked for
"""

import io
from collections.abc import Callable


class RangeFile(io.RawIOBase):
    """A file that can be read from any position; every read is one request for just that range.

    There is no read-ahead, which would fetch the columns beside the ones that are wanted, and nothing is fetched to
    open it.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], size_bytes: int) -> None:
        """`read_range(start, end)` gives the bytes from `start` to before `end`; `size_bytes` is the file's size."""
        self._read_range = read_range
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def seekable(self) -> bool:
        """Any position can be read."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go somewhere else; see `io.IOBase.seek`."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill the buffer, or as much of it as the file still has.

        Raises:
            OSError: If fewer bytes came than the file should have.
        """
        wanted = max(0, min(len(buffer), self._size_bytes - self._position))
        data = self._read_range(self._position, self._position + wanted) if wanted else b""
        if len(data) != wanted:
            raise OSError(f"{len(data)} bytes at {self._position}, {wanted} were expected")
        buffer[:wanted] = data
        self._position += wanted
        return wanted
