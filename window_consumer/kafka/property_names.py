"""Names of librdkafka's properties that are for every client: to find what was probably meant."""

from __future__ import annotations

from typing import Final

from window_consumer.kafka.settings import CONSUMER_ONLY, PRODUCER_ONLY
from window_consumer.model.tokens import did_you_mean

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
"""Not complete: what is missing here is only never recommended."""

_UNKNOWN = "No such configuration property"


def probably_meant(refusal: str, key: str | None) -> str:
    """Return ``; did you mean ...?`` where the client does not know a property, or nothing."""
    if key is None or _UNKNOWN not in refusal:
        return ""
    return did_you_mean(key, FOR_ALL | CONSUMER_ONLY | PRODUCER_ONLY)
