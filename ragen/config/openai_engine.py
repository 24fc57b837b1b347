"""Settings of engine 'openai', and of other clients of OpenAI-compatible servers."""

from typing import Any, ClassVar, Literal

from pydantic import Field

from starpo.ragen.config.engine import EngineConfig, Merging
from starpo.ragen.core.settings import Settings


class OpenAIServer(Settings):
    """An OpenAI-compatible server and its connection. The API key is never a setting: see `key_variable`."""

    transport: ClassVar[frozenset[str]] = frozenset(
        {"base_url", "key_variable", "max_concurrent", "timeout_s", "max_retries", "limit_parameter"}
    )
    """Settings that affect how an answer is fetched, but not its content."""

    base_url: str | None = Field(None, pattern=r"^https?://[^\s@?#]+$")
    """Address, including '/v1' if the server has it; must not contain secrets."""
    model: str | None = Field(None, min_length=1)
    """Name of the model on the server."""
    key_variable: str = Field("OPENAI_API_KEY", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Environment variable that holds the key; a server that wants none needs none."""
    limit_parameter: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """Request parameter that limits the length of a response. Most servers accept 'max_tokens'; OpenAI's reasoning
    models only 'max_completion_tokens'."""
    max_concurrent: int = Field(16, ge=1, le=4096)
    """Maximum number of concurrent requests."""
    timeout_s: float = Field(120.0, gt=0)
    """Time limit of one request, in seconds."""
    max_retries: int = Field(6, ge=0, le=100)
    """Number of retries after a refused connection, a time-out, 408, 409, 429 or 5xx, with exponential backoff or after
    the time that the server requests (Retry-After)."""


class OpenAIEngineConfig(OpenAIServer, EngineConfig):
    """An OpenAI-compatible server and the protocol to use. The API key is never a setting: see `key_variable`."""

    plays_checkpoint: ClassVar[bool] = False
    accepts_images: ClassVar[bool] = False

    protocol: Literal["vllm", "completions", "chat"] = "completions"
    """Representation of prompts and responses. 'completions': prompts as token ids, so the server's tokenizer must be
    the checkpoint's; responses as text. 'vllm': token ids both ways, supported by vLLM's server. 'chat': messages, to
    which the server applies its own chat template."""
    prompt_price: float = Field(0.0, ge=0)
    """Price of a million prompt tokens, in any currency."""
    response_price: float = Field(0.0, ge=0)
    """Price of a million response tokens."""

    @property
    def gives_tokens(self) -> bool:
        """See `EngineConfig.gives_tokens`."""
        return self.protocol == "vllm"

    @property
    def panel_merging(self) -> Merging:
        """Shards that end one after another, so that answers are kept while others are waited for. There are enough of
        them in play for `max_concurrent` requests, also while one of them has only its longest episodes left."""
        return Merging(num_episodes=min(512, max(64, 4 * self.max_concurrent)), num_at_once=4)

    def arguments(self, max_context_tokens: int) -> dict[str, Any]:
        """Return these settings.

        Raises:
            ValueError: If the server or the name of its model is missing.
        """
        if not (self.base_url and self.model):
            raise ValueError(
                "engine = 'openai' needs openai.base_url, such as 'http://127.0.0.1:8000/v1', and openai.model, the "
                "name under which that server knows the model"
            )
        return super().arguments(max_context_tokens)
