"""Settings of engine 'openai', and of whatever else asks a server of that kind."""

from typing import ClassVar, Literal

from pydantic import Field

from starpo.ragen.core.settings import Settings


class OpenAIServer(Settings):
    """A server that speaks OpenAI's protocol, and how it is reached. The key is never a setting: see `key_variable`."""

    transport: ClassVar[frozenset[str]] = frozenset(
        {"base_url", "key_variable", "max_concurrent", "timeout_s", "max_retries", "limit_parameter"}
    )
    """Settings that say how an answer is fetched, and nothing of what it is."""

    base_url: str | None = Field(None, pattern=r"^https?://[^\s@?#]+$")
    """Address, '/v1' included where the server has it; nothing secret in it."""
    model: str | None = Field(None, min_length=1)
    """The server's name for the model."""
    key_variable: str = Field("OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Environment variable that holds the key; a server that wants none needs none."""
    limit_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Request parameter that limits the length of a response. Most servers accept 'max_tokens'; OpenAI's reasoning
    models only 'max_completion_tokens'."""
    max_concurrent: int = Field(16, ge=1, le=4096)
    """Requests in flight."""
    timeout_s: float = Field(120.0, gt=0)
    """Of one request."""
    max_retries: int = Field(6, ge=0, le=100)
    """Further attempts after a refused connection, a time-out, 408, 409, 429 or 5xx, with growing waits; as long as the
    server asks (Retry-After) where it does."""


class OpenAIEngineConfig(OpenAIServer):
    """A server that speaks OpenAI's protocol, and how it is asked. The key is never a setting: see `key_variable`."""

    protocol: Literal["vllm", "completions", "chat"] = "completions"
    """How prompts and responses travel. 'completions': prompts as token ids, so that the server's tokenizer must be the
    checkpoint's, and responses as text. 'vllm': token ids both ways, which vLLM's server understands. 'chat': messages,
    to which the server applies its own chat template."""
    prompt_price: float = Field(0.0, ge=0)
    """Of a million prompt tokens, in any currency."""
    response_price: float = Field(0.0, ge=0)
    """Of a million response tokens."""
