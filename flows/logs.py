"""Sanitised logging: log records contain no terminal control sequences and no secrets, whatever the handler."""

import logging
import traceback

from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.visible import shortened, visible


class _Record(logging.LogRecord):
    """Log record whose message and traceback are sanitised."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        if self.exc_info and self.exc_info[0] is not None:  # formatters reuse an existing exc_text
            self.exc_text = _shown("".join(traceback.format_exception(*self.exc_info)).rstrip())

    def getMessage(self) -> str:  # noqa: N802 (the name is logging's)
        return _shown(super().getMessage())


def _shown(text: str) -> str:
    return visible(shortened(without_secrets(text)))


def install() -> None:
    """Install this log record class for the whole process."""
    logging.setLogRecordFactory(_Record)
