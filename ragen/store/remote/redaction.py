"""Addresses of stores hold no secrets, since they end up in records and logs."""

import os
from urllib.parse import urlsplit

from starpo.ragen.core.errors import StoreError
from starpo.ragen.core.redaction import without_secrets

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Where clients of S3 look for the server's address, the first that is set."""


def check_address(url: str) -> str:
    """Return a store's address that is one and holds no credentials.

    Raises:
        StoreError: If it is empty, or holds some.
    """
    if not url.strip():
        raise StoreError("the store's address is empty; expected a folder, or an address such as s3://bucket/prefix")
    if (shown := without_secrets(url)) != url:
        raise StoreError(
            f"the store's address {shown} carries credentials, which would end up in logs; take them out and "
            "put them into the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or ~/.aws/credentials"
        )
    return url


def check_endpoint() -> None:
    """Be sure that the address of the S3 server, where the environment gives one, is one, and holds no credentials.

    Raises:
        StoreError: If it is not, or does.
    """
    for name in ENDPOINT_VARIABLES:
        url = os.environ.get(name, "")
        shown = without_secrets(url)
        if shown != url:
            raise StoreError(
                f"{name} is {shown}, which carries credentials, and these would end up in logs; give the server's "
                "address alone, and the credentials as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).netloc):
            raise StoreError(f"{name} is '{url}', expected an address such as https://s3.example.org:9000")
