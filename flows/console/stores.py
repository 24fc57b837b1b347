"""The store that a command or a script names, or the configured one."""

from os import PathLike, fspath

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.store import Store
from starpo.ragen.store.remote.redaction import check_address

Address = str | PathLike[str]
"""A folder, or an fsspec URL."""


def open_store(url: Address | None) -> Store:
    """Open the store at this address, or the configured one (STARPO_STORE).

    Raises:
        StoreError: If the address is invalid.
    """
    return Store(Runtime.current().store if url is None else check_address(fspath(url)))
