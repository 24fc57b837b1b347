"""Client of a server with an OpenAI-compatible API; the API key comes from the environment, never from settings."""

import os
from typing import Any

from starpo.ragen.config.openai_engine import OpenAIServer
from starpo.ragen.core.errors import MissingPackageError


def open_client(server: OpenAIServer, asker: str) -> Any:
    """Open a client, which retries by itself; the caller must close it.

    Args:
        server: Address, timeout and retries.
        asker: Name of the component that needs it, for the error message.

    Raises:
        MissingPackageError: If the package `openai` is not installed.
    """
    try:
        from openai import OpenAI
    except ImportError as error:
        raise MissingPackageError(f"{asker} needs the package openai: pip install 'starpo[openai]'") from error
    return OpenAI(
        base_url=server.base_url,
        api_key=os.environ.get(server.key_variable) or "none",
        timeout=server.timeout_s,
        max_retries=server.max_retries,
    )
