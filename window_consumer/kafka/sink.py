"""A Sink on confluent-kafka's Producer: idempotent, acked by all in-sync replicas."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from window_consumer.kafka import errors, settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.kafka.reconnecting_producer import ReconnectingProducer
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.model.errors import PublishFailedError, WrongProcessError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Copy, Delivery

_PARTITION_BY_KEY = -1


class KafkaSink:
    """Writes a worker's copies and results. ``write`` and ``serve`` may run on two threads.

    The client is created for the first copy: most workers never write one, and even an idle
    idempotent producer asks the cluster for its id.
    """

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        worker: str,
        log: ClientLog,
        oauth_token: OauthToken | None = None,
        make_watchdog: MakeClientWatchdog = ClientWatchdog,
    ):
        self._conf = settings.producer_settings(user_settings, worker)
        self._conf.update(token_setting(self._conf, oauth_token))
        self._log = log
        self._make_watchdog = make_watchdog
        self._pid = os.getpid()
        self._producer: ReconnectingProducer | None = None
        self._made = threading.Event()

    def _log_error(self, error: KafkaError) -> None:
        self._log.info(LogEvent.PRODUCER_WARNED, "producer: %s", errors.text_of(error))

    def _usable(self) -> ReconnectingProducer:
        if os.getpid() != self._pid:
            raise WrongProcessError("this producer was made in another process")
        if self._producer is None:
            self._producer = ReconnectingProducer(
                self._conf, self._log, self._log_error, self._make_watchdog
            )
            self._made.set()
        return self._producer

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a copy; ``on_delivery`` gets None once all in-sync replicas have it."""
        topic = copy.topic

        def report(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                producer.on_acked()
                on_delivery(None)
            else:
                on_delivery(errors.publish_failure(producer.on_failed(error), topic))

        try:
            producer = self._usable()
            producer.produce(
                topic,
                value=copy.value,
                key=copy.key,
                partition=_PARTITION_BY_KEY if copy.partition is None else copy.partition,
                headers=list(copy.headers),
                timestamp=copy.timestamp or 0,  # 0 is the time of sending
                on_delivery=report,
            )
        except BufferError:
            on_delivery(PublishFailedError(f"copy to {topic}: the producer's queue is full"))
        except KafkaException as exception:
            error = errors.cause_of(exception)
            failure = (
                PublishFailedError(f"copy to {topic}: {exception}")
                if error is None
                else errors.publish_failure(error, topic)
            )
            on_delivery(failure)

    def serve(self, timeout_s: float) -> None:
        """Wait for answers and deliver them."""
        if self._made.wait(timeout_s) and self._producer is not None:
            self._producer.poll(timeout_s)

    def close(self, timeout_s: float) -> int:
        """Wait for missing answers; return how many are still missing."""
        return 0 if self._producer is None else self._producer.wait(timeout_s)
