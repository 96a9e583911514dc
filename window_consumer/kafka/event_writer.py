"""A producer of telemetry: it never waits, never raises, and reports events that it cannot send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException

from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.kafka.settings import EventNeeds, event_settings
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.kafka.writing.copy_writer import CopyWriter
from window_consumer.model.errors import ConfigError
from window_consumer.model.protocols import Copy, Delivery


class EventWriter(CopyWriter):
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
        """Create the client; raises ConfigError for settings that librdkafka refuses."""
        conf = event_settings(user_settings, needs)
        conf.update(token_setting(conf, oauth_token))
        super().__init__(conf, log, f"producer of {topic}", make_watchdog)
        self._topic = topic
        try:
            self.open()
        except KafkaException as exception:
            raise ConfigError(f"kafka: {exception.args[0]}") from exception

    def send(self, value: bytes, on_done: Delivery, key: bytes | None = None) -> None:
        """Send an event; ``on_done`` is called once, here or in ``serve``, with None for an ack."""
        self.write(Copy(self._topic, None, key, value, ()), on_done)
