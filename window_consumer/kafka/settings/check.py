"""Checks settings offline: librdkafka's refusals, and the property that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from window_consumer.kafka.settings import CONSUMER_ONLY, PRODUCER_ONLY, Kind
from window_consumer.model.conditions.tokens import did_you_mean

_NOWHERE = "127.0.0.1:1"
_NAMED = re.compile(r'[`"]([a-z][a-z0-9_.]+)[`"]|\b([a-z][a-z0-9]*(?:\.[a-z0-9]+)+) failed:')


@frozen
class RefusedSetting:
    """librdkafka's message, and the property that it names, if any."""

    text: str
    key: str | None


def refused_by_client(kind: Kind, settings: Mapping[str, Any]) -> RefusedSetting | None:
    """Create a client with these settings and discard it; return None if that works."""
    text = _answer(kind, settings)
    if text is None:
        return None
    for quoted, failed in _NAMED.findall(text):
        key = quoted or failed
        if key in settings:
            return RefusedSetting(text, key)
    # librdkafka may refuse a property under another of its names than the one in the file.
    for key, value in settings.items():
        if _answer(kind, {_GROUP: "any", key: value}) == text:
            return RefusedSetting(f"{key}: {text}", key)
    return RefusedSetting(text, None)


_GROUP = "group.id"
_CLIENTS: Mapping[Kind, Callable[[dict[str, Any]], Any]] = {
    "consumer": Consumer,
    "producer": Producer,
    "admin": AdminClient,
}


def _answer(kind: Kind, settings: Mapping[str, Any]) -> str | None:
    """Return librdkafka's objection to these settings, or None if it accepts them."""
    conf = {**settings, "bootstrap.servers": _NOWHERE, "log_level": 0}
    conf.pop("oauth_cb", None)  # a trial needs no token
    if kind != "consumer":
        conf.pop(_GROUP, None)
    try:
        client = _CLIENTS[kind](conf)
    except (KafkaException, TypeError, ValueError) as exception:
        return _text_of(exception)
    if kind == "consumer":
        client.close()
    return None


def _text_of(exception: Exception) -> str:
    cause = exception.args[0] if exception.args else exception
    text = cause.str() if hasattr(cause, "str") else str(cause)
    return " ".join(text.split())


_LISTED_FOR_ALL = """
    allow.auto.create.topics api.version.request.timeout.ms bootstrap.servers broker.address.family
    broker.address.ttl client.dns.lookup client.id client.rack connections.max.idle.ms debug
    enable.metrics.push enable.random.seed enable.sasl.oauthbearer.unsecure.jwt
    enable.ssl.certificate.verification log.connection.close log_level
    max.in.flight max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes
    metadata.broker.list metadata.max.age.ms metadata.recovery.strategy plugin.library.paths
    receive.message.max.bytes reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms
    retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name
    sasl.mechanism sasl.mechanisms sasl.oauthbearer.client.id sasl.oauthbearer.client.secret
    sasl.oauthbearer.config sasl.oauthbearer.extensions sasl.oauthbearer.method
    sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
    security.protocol socket.blocking.max.ms socket.connection.setup.timeout.ms
    socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
    socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem
    ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
    ssl.endpoint.identification.algorithm ssl.engine.id ssl.key.location ssl.key.password
    ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list
    statistics.interval.ms topic.blacklist topic.metadata.propagation.max.ms
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
"""
FOR_ALL: Final = frozenset(_LISTED_FOR_ALL.split())
"""Incomplete: a missing property is just never suggested."""

_UNKNOWN = "No such configuration property"


def probably_meant(refusal: str, key: str | None) -> str:
    """Return ``; did you mean ...?`` if the client does not know a property, or nothing."""
    if key is None or _UNKNOWN not in refusal:
        return ""
    return did_you_mean(key, FOR_ALL | CONSUMER_ONLY | PRODUCER_ONLY)
