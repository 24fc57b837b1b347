"""Stores by address, and their credentials from a Prefect block, as an alternative to environment variables.

    RAGEN_STORE_BLOCK=secret/NAME             a Secret block with JSON: {"AWS_ACCESS_KEY_ID": ..., ...}
    RAGEN_STORE_BLOCK=aws-credentials/NAME    a block of the package prefect-aws; minio-credentials/NAME likewise

They become environment variables of this process and its child processes, as the standard AWS chain expects. The
library itself does not depend on blocks. Nothing is written to disk.
"""

import os
from collections.abc import Mapping
from typing import Any

from starpo.ragen.agents.rollout.ray_cluster import prepare
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.remote.redaction import check_address

VARIABLE = "RAGEN_STORE_BLOCK"
"""Environment variable that names the block, as `type/name`."""

_FIELDS = {
    "AWS_ACCESS_KEY_ID": ("aws_access_key_id", "minio_root_user"),
    "AWS_SECRET_ACCESS_KEY": ("aws_secret_access_key", "minio_root_password"),
    "AWS_SESSION_TOKEN": ("aws_session_token",),
    "AWS_PROFILE": ("profile_name",),
    "AWS_DEFAULT_REGION": ("region_name",),
}


def open_store(url: str | os.PathLike[str] | None) -> Store:
    """Open the store at this URL or path, or the configured one (RAGEN_STORE), with its credentials.

    Raises:
        StoreError: If the address or its credentials are invalid.
    """
    load_credentials()
    return Store(Runtime.current().store if url is None else check_address(os.fspath(url)))


def load_credentials() -> None:
    """Load the block named by `RAGEN_STORE_BLOCK` into the environment; a no-op if the variable is not set.

    Raises:
        StoreError: If there is no such block, Prefect's server cannot be reached, or the block holds no credentials.
    """
    name = os.environ.get(VARIABLE)
    if name:
        os.environ.update(_variables(name, _load(name)))


def _load(name: str) -> Any:
    from prefect.blocks.core import Block

    prepare()  # loading a block imports all of Prefect's collections, Ray's included, so Ray is configured first
    try:
        return Block.load(name, _sync=True)  # type: ignore[call-arg]
    except Exception as error:  # server or network errors, or a block type whose package is missing
        raise StoreError(
            f"{VARIABLE} is '{name}', and that block cannot be loaded ({type(error).__name__}). Expected secret/NAME, "
            "or aws-credentials/NAME with the package prefect-aws; `prefect block ls` lists those of the server "
            "that PREFECT_API_URL names"
        ) from None  # the error may reveal the block's content


def _variables(name: str, block: Any) -> dict[str, str]:
    held = block.get() if hasattr(block, "get") else None
    if isinstance(held, Mapping):
        found = {key: value for key, value in held.items() if str(key).startswith("AWS_") and isinstance(value, str)}
    else:
        parameters = getattr(block, "aws_client_parameters", None)
        found = {"AWS_ENDPOINT_URL": _plain(getattr(parameters, "endpoint_url", None))}
        for variable, fields in _FIELDS.items():
            found[variable] = next((text for field in fields if (text := _plain(getattr(block, field, None)))), "")
    found = {variable: value for variable, value in found.items() if value}
    if not found:
        raise StoreError(
            f"{VARIABLE} is '{name}', and that block holds no credentials; expected "
            '{"AWS_ACCESS_KEY_ID": "...", "AWS_SECRET_ACCESS_KEY": "..."} in a Secret block, or an AwsCredentials block'
        )
    return found


def _plain(value: Any) -> str:
    return value.get_secret_value() if hasattr(value, "get_secret_value") else str(value or "")
