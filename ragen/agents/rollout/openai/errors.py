"""Error messages for failed server requests: where, what, and what to do. They never contain the key."""

import os

from starpo.ragen.config.openai_engine import OpenAIServer
from starpo.ragen.core.errors import EngineError

_LONGEST = 300


def explained(
    error: Exception, config: OpenAIServer, max_retries: int, settings: str = "rollout.openai"
) -> EngineError:
    """Translate an error of the package `openai`; raise the result `from None`, since servers echo keys in responses.

    For a rejected key the server's text is not quoted at all, since it may contain parts of the key; in other quotes
    the key is masked.

    Args:
        error: The original error.
        config: The server.
        max_retries: Number of attempts after the first.
        settings: Path of the server's settings, for advice.
    """
    import openai

    def quoted(error: BaseException) -> str:
        text = (str(error).strip().splitlines() or [type(error).__name__])[0]
        key = os.environ.get(config.key_variable)
        return (text.replace(key, f"${config.key_variable}") if key else text)[:_LONGEST]

    server, attempts = f"the server at {config.base_url}", f"{max_retries + 1} attempts"
    if isinstance(error, openai.APITimeoutError):
        what = (
            f"{server} gave no answer within {config.timeout_s:g} s, in {attempts}; raise {settings}.timeout_s or "
            f"lower {settings}.max_concurrent"
        )
    elif isinstance(error, openai.APIConnectionError):
        what = (
            f"{server} cannot be reached ({quoted(error.__cause__ or error)}), in {attempts}; check "
            f"{settings}.base_url, and that the server is running"
        )
    elif isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        what = (
            f"{server} refuses the key (status {error.status_code}); set the environment variable "
            f"{config.key_variable} to a key that may use '{config.model}'"
        )
    elif isinstance(error, openai.NotFoundError):
        what = (
            f"{server} has no such address or no model '{config.model}' (status 404); base_url usually ends in /v1: "
            f"{quoted(error)}"
        )
    elif isinstance(error, openai.RateLimitError):
        what = (
            f"{server} still limits the rate after {attempts} (status 429); lower {settings}.max_concurrent or "
            f"raise {settings}.max_retries"
        )
    elif isinstance(error, openai.APIStatusError):
        what = f"{server} failed with status {error.status_code}, in {attempts}: {quoted(error)}"
    else:
        what = (
            f"{server} gave an answer that does not follow OpenAI's protocol ({type(error).__name__}); check "
            f"{settings}.base_url: it usually ends in /v1"
        )
    return EngineError(what)
