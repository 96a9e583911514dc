"""A Sink on confluent-kafka's Producer: idempotent, acked by all in-sync replicas."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from attrs import define
from confluent_kafka import KafkaException

from window_consumer.kafka import settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.kafka.writing.copy_writer import CopyWriter
from window_consumer.model.errors import WrongProcessError
from window_consumer.model.protocols import Copy, Delivery


@define
class _Forks:
    """How often this process and its parents were forked. Owner: the thread that forks."""

    count: int = 0

    def add(self) -> None:
        """Count one more."""
        self.count += 1


_FORKS: Final = _Forks()
"""Detects a fork without asking for the process id, which is a system call for each copy."""
os.register_at_fork(after_in_child=_FORKS.add)


class KafkaSink(CopyWriter):
    """Writes a worker's copies and results. ``write`` and ``serve`` may run on two threads.

    The client is created for the first copy, or by ``connect``: most workers never write one, and
    even an idle idempotent producer asks the cluster for its id.
    """

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        worker: str,
        log: ClientLog,
        oauth_token: OauthToken | None = None,
        make_watchdog: MakeClientWatchdog = ClientWatchdog,
    ):
        conf = settings.producer_settings(user_settings, worker)
        conf.update(token_setting(conf, oauth_token))
        super().__init__(conf, log, make_watchdog=make_watchdog)
        self._forks = _FORKS.count

    def connect(self) -> None:
        """Create the client now, before another thread uses the sink.

        A client takes 0.5 s to connect and to get its id, 1.5 s from brokers that have just
        started. Settings that librdkafka refuses fail the first copy instead.
        """
        with suppress(KafkaException):
            self.open()

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a copy; ``on_delivery`` gets None once all in-sync replicas have it.

        Raises WrongProcessError in a fork.
        """
        if self._forks != _FORKS.count:
            raise WrongProcessError("this producer was created in another process")
        super().write(copy, on_delivery)
