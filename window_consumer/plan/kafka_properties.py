"""Problems of a worker's Kafka properties, with the place where each was set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from window_consumer.config import LoadedConfig
from window_consumer.kafka import settings
from window_consumer.kafka.settings.check import probably_meant, refused_by_client
from window_consumer.kafka.settings.client_files import names_a_file, unusable_files
from window_consumer.plan.app_plan import PlannedWorker


def kafka_problems(loaded: LoadedConfig, worker: PlannedWorker) -> Iterator[str]:
    """Yield the Kafka properties that break a guarantee, then those that librdkafka refuses."""
    users: dict[settings.Kind, Mapping[str, Any]] = {
        "consumer": worker.consumer,
        "producer": worker.producer,
        "admin": worker.admin,
    }
    refused = False
    for kind, user in users.items():
        for key, reason in (*settings.refusals(user, kind), *unusable_files(user)):
            refused = True
            yield f"{_where_kafka(loaded, worker.name, kind, key)}: kafka: {reason}"
    if refused:
        return
    needs = settings.ConsumerNeeds(
        group=worker.config.group or None,
        worker=worker.name,
        ordered=worker.config.ordering != "unordered",
        memory=worker.config.memory,
    )
    for protocol in settings.group_protocols(worker.consumer):
        conf = settings.consumer_settings(worker.consumer, needs, protocol)
        yield from _refused(loaded, worker.name, "consumer", conf)
    conf = settings.producer_settings(worker.producer, worker.name)
    yield from _refused(loaded, worker.name, "producer", conf)
    conf = settings.admin_settings(worker.admin, worker.name)
    yield from _refused(loaded, worker.name, "admin", conf)


_ADDRESS = re.compile(r"(\w+://)?(\[[\da-fA-F:.%]+\]|[^\s:/\[\]]+)(:0*[1-9]\d{0,4})?")
"""A broker address as librdkafka accepts it; the port defaults to 9092."""


def missing_brokers(loaded: LoadedConfig, worker: PlannedWorker) -> Iterator[str]:
    """Yield the clients of a worker without brokers, and invalid broker addresses."""
    users: dict[settings.Kind, Mapping[str, Any]] = {
        "consumer": worker.consumer,
        "producer": worker.producer,
        "admin": worker.admin,
    }
    without: list[settings.Kind] = []
    for kind, user in users.items():
        found = [key for key in sorted(settings.BOOTSTRAP) if str(user.get(key, "")).strip(" ,")]
        without += [] if found else [kind]
        for key in found:
            for address in filter(None, map(str.strip, str(user[key]).split(","))):
                if not _ADDRESS.fullmatch(address):
                    yield (
                        f"{_where_kafka(loaded, worker.name, kind, key)}: kafka.{key}: {address!r}"
                        " is not an address: expected a host and a port, as in broker-1:9092"
                    )
    if without:
        whose = "" if len(without) == len(users) else f" for the {' and the '.join(without)}"
        place = _where_kafka(loaded, worker.name, without[0], "bootstrap.servers")
        yield (
            f"{place}: kafka.bootstrap.servers: is missing{whose}:"
            " the addresses of the brokers, as in broker-1:9092,broker-2:9092"
        )


def _refused(
    loaded: LoadedConfig, worker: str, kind: settings.Kind, conf: settings.Settings
) -> Iterator[str]:
    refusal = refused_by_client(kind, conf)
    if refusal is not None:
        where = _where_kafka(loaded, worker, kind, refusal.key)
        hint = ""
        if refusal.key is not None and names_a_file(refusal.key):
            hint = f" ({conf.get(refusal.key)} exists: is its content of the right kind?)"
        hint = hint or probably_meant(refusal.text, refusal.key)
        yield f"{where}: kafka: {refusal.text}{hint}"


def _where_kafka(loaded: LoadedConfig, worker: str, kind: settings.Kind, key: str | None) -> str:
    """Return where a Kafka property was set: the most specific of the four places."""
    own, shared = loaded.config.workers[worker].kafka, loaded.config.kafka
    places: list[tuple[tuple[str, ...], Mapping[str, object]]] = [
        (("workers", worker, "kafka", kind), getattr(own, kind)),
        (("workers", worker, "kafka"), own.common),
        (("kafka", kind), getattr(shared, kind)),
        (("kafka",), shared.common),
    ]
    for place, properties in places:
        if key is not None and key in properties:
            return loaded.where((*place, key))
    return loaded.where(("kafka",))
