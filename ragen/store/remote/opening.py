"""From a store's address to its `Location`."""

from pathlib import Path
from urllib.parse import urlsplit

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store.remote.folder import Folder
from starpo.ragen.store.remote.location import Location
from starpo.ragen.store.remote.redaction import check_address


def open_location(url: str) -> Location:
    """Return the location that an fsspec URL or a local path names; nothing is accessed.

    Raises:
        StoreError: If the address is empty or of an unknown kind, or contains credentials.
    """
    name = check_address(url)
    protocol = urlsplit(url).scheme if "://" in url else "file"
    if protocol == "file":
        try:
            return Folder(name, Path(url.removeprefix("file://")).expanduser().absolute())
        except RuntimeError as error:
            raise StoreError(f"the store's address {name} names an unknown home folder: {error}") from error
    if protocol in ("s3", "s3a") and not urlsplit(url).netloc:
        raise StoreError(f"the store's address {name} names no bucket; expected s3://bucket/prefix")
    from starpo.ragen.store.remote.bucket import Bucket  # fsspec and botocore, which a local store does not need

    try:
        return Bucket(name)
    except (ValueError, ImportError) as error:
        raise StoreError(
            f"the store's address {name} is not supported ({error}); "
            "expected a folder, or an address such as s3://bucket/prefix"
        ) from error
