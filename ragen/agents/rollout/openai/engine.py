"""An engine that queries a server with an OpenAI-compatible API. For evaluation only: behaviour log-probs are unknown.

checkpoint folder (its tokenizer) -> OpenAIEngine -> OpenAISession (one per shard) -> HTTP -> responses

The server's model generates the responses; the checkpoint provides the tokenizer, the chat template and the panel of
the comparison.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from threading import Lock
from typing import Any

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.agents.rollout.openai.client import open_client
from starpo.ragen.agents.rollout.openai.errors import explained
from starpo.ragen.agents.rollout.openai.session import OpenAISession
from starpo.ragen.config.openai_engine import OpenAIEngineConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError

_GREETING_TIMEOUT_S = 20.0


class OpenAIEngine:
    """Implements `ragen.agents.rollout.engine.RolloutEngine`. Its sessions stream, and may be used concurrently:
    together they have at most `max_concurrent` requests in flight, in the order in which these were submitted.

    Attributes:
        is_deterministic: False.
        is_continuous: True.
    """

    is_deterministic = False
    is_continuous = True

    def __init__(self, num_threads: int | None = None, **options: Any) -> None:
        """Configure the engine; `load` sends the first request.

        Args:
            num_threads: No effect, since nothing is computed locally.
            options: Fields of `OpenAIEngineConfig`.
        """
        self._config = OpenAIEngineConfig(**options)
        self._tokenizer: PreTrainedTokenizerBase | None = None
        self._checkpoint_key: str | None = None
        self._loading = Lock()
        self._threads = ThreadPoolExecutor(self._config.max_concurrent, thread_name_prefix="openai")

    def load(self, folder: str, checkpoint_key: str) -> None:
        """Load this checkpoint's tokenizer, and check that the server responds and has the model.

        Raises:
            PolicyError: If the folder has no tokenizer.
            EngineError: If the server does not respond, rejects the key, or does not have the model.
            MissingPackageError: If the package `openai` is not installed.
        """
        with self._loading:
            if checkpoint_key == self._checkpoint_key:
                return
            self._tokenizer = load_tokenizer(folder)
            greet(self._config)
            self._checkpoint_key = checkpoint_key

    def session(self, sampling: SamplingConfig, stop_token_ids: Sequence[int]) -> OpenAISession:
        """Start a session for one shard.

        Raises:
            EngineError: If no checkpoint is loaded.
        """
        if self._tokenizer is None:
            raise EngineError("no checkpoint is loaded; call load(folder, checkpoint_key) before session()")
        client = open_client(self._config, "engine 'openai'")
        return OpenAISession(client, self._threads, self._config, self._tokenizer, sampling, stop_token_ids)

    def close(self) -> None:
        """End the idle threads; the others end with their requests."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def greet(config: OpenAIEngineConfig) -> None:
    """Check the model against the server's list of models; servers without such a list are trusted.

    Raises:
        EngineError: If the server does not respond, rejects the key, or does not have the model.
        MissingPackageError: If the package `openai` is not installed.
    """
    import openai

    max_retries = min(config.max_retries, 1)
    hasty = {"timeout_s": min(config.timeout_s, _GREETING_TIMEOUT_S), "max_retries": max_retries}
    with open_client(config.model_copy(update=hasty), "engine 'openai'") as client:
        try:
            names = [model.id for model in client.models.list().data]
        except (openai.NotFoundError, openai.InternalServerError, openai.RateLimitError):
            return
        except (openai.OpenAIError, ValueError, AttributeError, TypeError) as error:
            raise explained(error, config, max_retries) from None
    if config.model not in names:
        near = get_close_matches(str(config.model), names, n=3) or names[:5]
        raise EngineError(
            f"the server at {config.base_url} has no model '{config.model}' (rollout.openai.model); it has "
            f"{', '.join(near)}"
        )
