"""Sending rows to Kafka, a batch at a time: every row has an answer before its lock is released.

The relay has a client of its own: ``Producer`` keeps sending what has no answer, and another relay
might send later rows of the key meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from window_consumer.database.outbox.table import OutboxRow
from window_consumer.kafka.batch_sending import Answer, BatchSender
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken
from window_consumer.model.protocols import Copy

_TIMEOUT_S: Final = 3.0


class OutboxSender(Protocol):
    """Sends batches. Owner: the relay's thread."""

    def send(self, rows: Sequence[OutboxRow], timeout_s: float) -> Sequence[Answer]:
        """Send rows in their order and return an answer for each, within ``timeout_s``.

        What has no answer by then is not sent any more.
        """

    def close(self, timeout_s: float) -> None:
        """End the client."""


class KafkaOutboxSender:
    """Sends with a client of its own."""

    def __init__(
        self, properties: Mapping[str, Any], log: ClientLog, oauth_token: OauthToken | None = None
    ):
        self._sender = BatchSender(
            properties, "outbox-relay", log, oauth_token, timeout_s=_TIMEOUT_S
        )

    def send(self, rows: Sequence[OutboxRow], timeout_s: float) -> Sequence[Answer]:
        """See OutboxSender."""
        copies = [
            Copy(row.topic, row.partition, row.key, row.payload, row.headers, row.timestamp)
            for row in rows
        ]
        return self._sender.send(copies, timeout_s)

    def close(self, timeout_s: float) -> None:
        """See OutboxSender."""
        self._sender.close(timeout_s)
