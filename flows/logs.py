"""The door to logs: what is logged steers no terminal and holds no secret, wherever a handler writes it."""

import logging
import traceback

from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.visible import shortened, visible


class _Record(logging.LogRecord):
    """A record whose message, and whose traceback, may be seen."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        if self.exc_info and self.exc_info[0] is not None:  # formatters take what is there already
            self.exc_text = _shown("".join(traceback.format_exception(*self.exc_info)).rstrip())

    def getMessage(self) -> str:  # noqa: N802 (the name is logging's)
        return _shown(super().getMessage())


def _shown(text: str) -> str:
    return visible(shortened(without_secrets(text)))


def install() -> None:
    """Log like this in the whole process."""
    logging.setLogRecordFactory(_Record)
