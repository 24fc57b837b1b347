"""The client of a server that speaks OpenAI's protocol, with the key from the environment: it is in no setting."""

import os
from typing import Any

from starpo.ragen.config.openai_engine import OpenAIServer
from starpo.ragen.core.errors import MissingPackageError


def open_client(server: OpenAIServer, asker: str) -> Any:
    """A client, which retries by itself; whoever opens it closes it.

    Args:
        server: Where it is, and with how much patience to ask.
        asker: Who asks, for the message.

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
