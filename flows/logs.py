"""The door to logs: what is logged steers no terminal, wherever a handler writes it."""

import logging
import traceback

from starpo.ragen.core.visible import shortened, visible


class _Record(logging.LogRecord):
    """A record whose message, and whose traceback, is text that may be seen."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        if self.exc_info and self.exc_info[0] is not None:  # formatters take what is there already
            self.exc_text = visible(shortened("".join(traceback.format_exception(*self.exc_info)).rstrip()))

    def getMessage(self) -> str:  # noqa: N802 (the name is logging's)
        return visible(shortened(super().getMessage()))


def install() -> None:
    """Log like this in the whole process."""
    logging.setLogRecordFactory(_Record)
