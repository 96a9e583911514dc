"""Watchdogs that notice a lost client within seconds instead of a minute."""

from __future__ import annotations

from functools import partial

from confluent_kafka import KafkaError

from window_consumer.kafka.watchdogs.client import (
    ClientWatchdog,
    ClientWatchdogTimes,
    MakeClientWatchdog,
)


class UnreportedWatchdog(ClientWatchdog):
    """The watchdog of a client that loses the cluster without reporting an error."""

    def record_error(self, error: KafkaError) -> None:
        pass


def quick_watchdog(kind: type[ClientWatchdog]) -> MakeClientWatchdog:
    """Return a factory; clients that report nothing are found by their silence."""
    if kind is UnreportedWatchdog:
        return partial(kind, times=ClientWatchdogTimes(check_s=0.2, silent_s=1.0))
    return partial(kind, times=ClientWatchdogTimes(check_s=0.2))
