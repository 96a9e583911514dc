"""A producer that is replaced when it has lost its way to the cluster, see ``lifeline``."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, Producer

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.lifeline import Lifeline


class LastingProducer:
    """``produce`` belongs to one thread, everything else to one, which may be another."""

    def __init__(
        self, settings: Mapping[str, Any], log: ClientLog, on_error: Callable[[KafkaError], None]
    ):
        """Make the client; raises KafkaException where it cannot be made."""
        self._log = log
        self._on_error = on_error
        self._settings = {**settings, "error_cb": self._hear}
        self._lifeline = Lifeline(settings, notices_silence=True)
        self._producer = Producer(self._settings, logger=log)
        self._given_up: list[Producer] = []

    def _hear(self, error: KafkaError) -> None:
        self._lifeline.note(error)
        self._on_error(error)

    def produce(self, topic: str, **message: Any) -> None:
        """Send a message, as confluent-kafka's producer does."""
        self._producer.produce(topic, **message)

    def note_unsent(self, error: KafkaError) -> None:
        """Hear why a message failed, which may have been for want of an answer."""
        if errors.is_expiry(error):
            self._lifeline.suspect()

    def poll(self, timeout_s: float) -> None:
        """Wait for answers and hand them out; messages of a lost client fail."""
        if self._producer.poll(timeout_s) or not len(self._producer):
            self._lifeline.heard()
        for lost in list(self._given_up):
            # Again and again: who sends may have had this client in his hand when it was replaced.
            lost.purge()
            lost.poll(0)
            if not len(lost):
                self._given_up.remove(lost)
        if self._lifeline.is_lost(self._producer):
            self._log.log(
                logging.WARNING,
                "the cluster answers, and this producer has lost its way to it: goes on with a new"
                " one",
            )
            self._lifeline = Lifeline(self._settings, notices_silence=True)
            self._given_up.append(self._producer)
            self._producer = Producer(self._settings, logger=self._log)

    def wait(self, timeout_s: float) -> int:
        """Wait for the answers that are missing; return how many are still missing then."""
        deadline = time.monotonic() + timeout_s
        missing = len(self._producer)
        while missing and (left := deadline - time.monotonic()) > 0:
            missing = self._producer.flush(left)
        return missing
