"""librdkafka's own log lines, passed on to logging without ever raising."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

Mask = Callable[[str], str]


class ClientLog:
    """What the client library gets as its logger.

    It is called from within the client: an exception (of a user's logging filter, say) would
    destroy the batch of records that is being returned, so it ends here, on stderr.
    """

    def __init__(self, logger: logging.Logger, mask: Mask = str):
        self._logger = logger
        self._mask = mask

    def log(self, level: int, message: str, *args: Any, **_: Any) -> None:
        """Pass a line on; the client's levels are those of logging."""
        try:
            self._logger.log(level, "%s", self._mask(message % args if args else message))
        except Exception as exception:
            sys.stderr.write(f"window_consumer: a log line was lost: {exception!r}\n")

    def info(self, message: str, *args: Any) -> None:
        """Write a line of our own."""
        self.log(logging.INFO, message, *args)
