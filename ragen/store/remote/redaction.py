"""Checks that addresses of stores contain no secrets, since they are written to records and logs."""

import os
from urllib.parse import urlsplit

from starpo.ragen.core.errors import StoreError
from starpo.ragen.core.redaction import without_secrets

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Variables in which S3 clients look for the server's address; the first one set is used."""


def check_address(url: str) -> str:
    """Return a store's address if it is valid and contains no credentials.

    Raises:
        StoreError: If it is empty or contains credentials.
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
    """Check that the address of the S3 server, if the environment sets one, is valid and contains no credentials.

    Raises:
        StoreError: Otherwise.
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
