"""Sending a batch of records whose every answer is known within a bounded time.

``Producer`` keeps sending until the brokers have a record. Here a record that has no answer in time
is given up: whoever holds a lock for it may release it then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from window_consumer.kafka import errors, settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.kafka.reconnecting_producer import ReconnectingProducer
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Copy

Answer = PublishFailedError | None
"""None: the brokers have it. ``refused``: they never will. Else nobody knows."""

_PARTITION_BY_KEY: Final = -1
_POLL_S: Final = 0.1
_MISSING_TOPIC_MS: Final = 60_000
"""A new topic takes a moment to be known everywhere."""

_UNANSWERED: Final = PublishFailedError("the brokers did not answer in time")


class BatchSender:
    """Sends batches in their order. Owner: one thread."""

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        name: str,
        log: ClientLog,
        oauth_token: OauthToken | None = None,
        *,
        timeout_s: float,
    ):
        """Give a record up ``timeout_s`` after it was sent, or up to a second later."""
        ours = {
            "compression.type": "zstd",
            "topic.metadata.propagation.max.ms": _MISSING_TOPIC_MS,
            **user_settings,
            "client.id": f"wc-{name}",
            "linger.ms": 0,  # a batch is there as a whole, and nothing comes after it
            "message.timeout.ms": round(timeout_s * 1000),
        }
        ours.pop("delivery.timeout.ms", None)  # the same by another name
        conf = settings.producer_settings(ours, name)
        conf.update(token_setting(conf, oauth_token))
        self._log = log
        self._producer = ReconnectingProducer(conf, log, self._log_error)

    def _log_error(self, error: KafkaError) -> None:
        self._log.info(LogEvent.PRODUCER_WARNED, "producer: %s", errors.text_of(error))

    def send(self, copies: Sequence[Copy], within_s: float) -> list[Answer]:
        """Send records and return the answer for each, in their order.

        A record without an answer after ``within_s`` counts as unknown.
        """
        answers: list[Answer] = [_UNANSWERED] * len(copies)
        missing = len(copies)

        def report(place: int, error: KafkaError | None, _message: Message) -> None:
            nonlocal missing
            missing -= 1
            answers[place] = None if error is None else self._failure(error, copies[place].topic)

        for place, (topic, partition, key, value, headers, timestamp) in enumerate(copies):
            try:
                # Positional: it is faster, and there are many. Timestamp 0 is the time of sending.
                self._producer.client().produce(
                    topic,
                    value,
                    key,
                    _PARTITION_BY_KEY if partition is None else partition,
                    partial(report, place),
                    None,
                    timestamp or 0,
                    headers,  # type: ignore[arg-type] # those of a row are a list
                )
            except BufferError:
                missing -= 1
                answers[place] = PublishFailedError("the client's queue is full")
            except KafkaException as exception:
                missing -= 1
                cause = errors.cause_of(exception)
                answers[place] = (
                    PublishFailedError(str(exception))
                    if cause is None
                    else errors.publish_failure(cause, topic)
                )
        deadline = time.monotonic() + within_s
        while missing and (left_s := deadline - time.monotonic()) > 0:
            self._producer.poll(min(left_s, _POLL_S))
        if None in answers:
            self._producer.on_acked()
        return answers

    def _failure(self, error: KafkaError, topic: str) -> PublishFailedError:
        return errors.publish_failure(self._producer.on_failed(error), topic)

    def close(self, timeout_s: float) -> None:
        """Wait for what is on its way, at most so long."""
        self._producer.wait(timeout_s)
