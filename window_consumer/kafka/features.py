"""What the brokers can do, as far as the client tells: it has no question for that, only a log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from window_consumer.kafka.client_log import ClientLog

_CONTEXT = "feature"
_NO_CONSUMER_PROTOCOL = ("ConsumerGroupHeartbeat", "NOT supported by broker")


class Features:
    """A client's logger that listens for what brokers lack, and passes other lines on.

    librdkafka writes at each connection which requests the broker does not know. In the consumer
    group protocol it then just stands still, without an error (measured with 2.16).
    """

    def __init__(self, log: ClientLog, settings: Mapping[str, Any]):
        self._log = log
        self._asked = settings.get("debug")
        self.no_consumer_protocol = False

    def settings(self) -> dict[str, str]:
        """Return what makes a client write these lines."""
        return {"debug": f"{self._asked},{_CONTEXT}" if self._asked else _CONTEXT}

    def log(self, level: int, message: str, *args: Any, **_: Any) -> None:
        """Take a line from the client; must not raise."""
        if level <= logging.DEBUG:
            if all(part in str(args) for part in _NO_CONSUMER_PROTOCOL):
                self.no_consumer_protocol = True
            if not self._asked:
                return
        self._log.log(level, message, *args)
