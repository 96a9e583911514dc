"""What the brokers support. The client reveals it only in its log."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from window_consumer.kafka.client_log import ClientLog
from window_consumer.model.log_events import LogEvent

_CONTEXT = "feature"
_HUNG_UP = re.compile(r"bootstrap: Disconnected.* in state (APIVERSION_QUERY|UP)\b")
"""The broker closes the first connection. A TLS port gives an unreadable answer; a SASL port
accepts the request for versions and closes on the next one (measured with Kafka 4.3).
"""

_SASL = "sasl.mechanism, sasl.username and sasl.password"
_NO_CONSUMER_PROTOCOL = ("ConsumerGroupHeartbeat", "NOT supported by broker")


class Features:
    """A client's logger that detects missing features of brokers, and passes other lines on.

    librdkafka logs at each connection which requests the broker does not support. In the consumer
    group protocol it then stalls without an error (measured with 2.16).
    """

    def __init__(self, log: ClientLog, settings: Mapping[str, Any]):
        self._log = log
        self._settings = settings
        self._asked = settings.get("debug")
        self._hung_up_in: str | None = None
        """State of the first connection when the broker last closed it."""
        self.no_consumer_protocol = False

    def hint(self) -> str | None:
        """Return what to set if the broker seems to expect TLS or SASL; None if it does not."""
        protocol = str(self._settings.get("security.protocol", "plaintext")).lower()
        if self._hung_up_in == "APIVERSION_QUERY" and protocol == "sasl_plaintext":
            return "the port may expect TLS: set security.protocol: SASL_SSL"
        if self._hung_up_in is not None and protocol == "plaintext":
            expected = "TLS or SASL" if self._hung_up_in == "APIVERSION_QUERY" else "SASL"
            return (
                f"the port closes plaintext connections and may expect {expected}: set"
                f" security.protocol to SSL, SASL_SSL or SASL_PLAINTEXT, for SASL also {_SASL}"
            )
        return None

    def settings(self) -> dict[str, str]:
        """Return the settings that make a client write these lines."""
        return {"debug": f"{self._asked},{_CONTEXT}" if self._asked else _CONTEXT}

    def log(self, level: int, message: str, *args: Any, **_: Any) -> None:
        """Handle a line from the client; must not raise."""
        if level <= logging.DEBUG:
            if all(part in str(args) for part in _NO_CONSUMER_PROTOCOL):
                self.no_consumer_protocol = True
            if not self._asked:
                return
        hung_up = _HUNG_UP.search(" ".join(map(str, (message, *args))))
        if hung_up:
            self._hung_up_in = hung_up[1]
        self._log.log(level, message, *args, event=LogEvent.CLIENT_LOGGED)
