"""A producer of telemetry: it never waits and never raises, and it reports what it cannot send."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.kafka.reconnecting_producer import ReconnectingProducer
from window_consumer.kafka.settings import EventNeeds, event_settings
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.model.errors import ConfigError, PublishFailedError
from window_consumer.model.log_events import LogEvent

OnDone = Callable[[PublishFailedError | None], None]


class EventWriter:
    """Sends events to one topic. ``send`` and ``serve`` belong to one thread."""

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        needs: EventNeeds,
        topic: str,
        log: ClientLog,
        oauth_token: OauthToken | None = None,
        make_watchdog: MakeClientWatchdog = ClientWatchdog,
    ):
        self._topic = topic
        self._log = log
        conf = event_settings(user_settings, needs)
        conf.update(token_setting(conf, oauth_token))
        try:
            self._producer = ReconnectingProducer(conf, log, self._log_error, make_watchdog)
        except KafkaException as exception:
            raise ConfigError(f"kafka: {exception.args[0]}") from exception

    def _log_error(self, error: KafkaError) -> None:
        self._log.info(
            LogEvent.PRODUCER_WARNED, "producer of %s: %s", self._topic, errors.text_of(error)
        )

    def send(self, value: bytes, on_done: OnDone, key: bytes | None = None) -> None:
        """Send an event; ``on_done`` is called once, here or in ``serve``, with None for an ack."""
        topic = self._topic

        def report(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self._producer.on_acked()
                on_done(None)
            else:
                on_done(errors.publish_failure(self._producer.on_failed(error), topic))

        try:
            self._producer.produce(topic, value=value, key=key, on_delivery=report)
        except BufferError:
            text = f"{topic}: more waits for the broker than may"
            on_done(PublishFailedError(text, why="the producer's queue is full"))
        except KafkaException as exception:
            error = errors.cause_of(exception)
            on_done(
                PublishFailedError(f"{topic}: {exception}")
                if error is None
                else errors.publish_failure(error, topic)
            )

    def serve(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` for an answer, and deliver all that have arrived."""
        self._producer.poll(timeout_s)

    def close(self, timeout_s: float) -> int:
        """Wait for missing answers; return how many are still missing."""
        return self._producer.wait(timeout_s)
