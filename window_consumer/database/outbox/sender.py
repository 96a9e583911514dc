"""Sending rows to Kafka, a batch at a time: every row has an answer before its lock is released."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from window_consumer.database.outbox.table import OutboxRow
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken
from window_consumer.kafka.sink import KafkaSink
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.protocols import Copy

Answer = PublishFailedError | None
"""None: Kafka has the row. ``refused``: it never will. Else nobody knows: it is sent again."""

_TIMEOUT_MS: Final = 3_000
"""The client gives a row up within a second after it: then nothing is on its way any more."""

_POLL_S: Final = 0.05


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
        more = {"linger.ms": 0, "message.timeout.ms": _TIMEOUT_MS, "client.id": "wc-outbox-relay"}
        self._sink = KafkaSink({**properties, **more}, "outbox-relay", log, oauth_token)

    def send(self, rows: Sequence[OutboxRow], timeout_s: float) -> Sequence[Answer]:
        """See OutboxSender."""
        answers: list[Answer] = [_UNANSWERED] * len(rows)
        missing = len(rows)

        def report(place: int, answer: Answer) -> None:
            nonlocal missing
            missing -= 1
            answers[place] = answer

        for place, row in enumerate(rows):
            copy = Copy(row.topic, row.partition, row.key, row.payload, row.headers, row.timestamp)
            self._sink.write(copy, partial(report, place))
        deadline = time.monotonic() + timeout_s
        while missing and (left_s := deadline - time.monotonic()) > 0:
            self._sink.serve(min(left_s, _POLL_S))
        return answers

    def close(self, timeout_s: float) -> None:
        """See OutboxSender."""
        self._sink.close(timeout_s)


_UNANSWERED: Final = PublishFailedError("the brokers did not answer in time")
