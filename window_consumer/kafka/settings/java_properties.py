"""Properties of Kafka's Java client, with the replacement or the reason why none is needed.

librdkafka refuses most of them without advice, and accepts ``max.poll.records`` without effect.
"""

from __future__ import annotations

from typing import Final

_DECODING = (
    "not needed: values are decoded by the handler's annotation or value=, keys are bytes;"
    " see docs/handlers.md"
)
_ENCODING = "not needed: copies are unchanged bytes, and Produce takes bytes or text"
_METRICS = "not needed: see docs/metrics.md and docs/opentelemetry.md"
_TRUST = "use ssl.ca.location, a PEM file (keytool -exportcert -rfc writes one)"
_TLS = "remove it: OpenSSL decides; ssl.cipher.suites and ssl.curves.list can be set"
_LOGIN = "use sasl.username and sasl.password, for OAUTHBEARER @app.oauth_token"

JAVA_ONLY: Final[dict[str, str]] = {
    "auto.include.jmx.reporter": _METRICS,
    "bootstrap.controllers": "use bootstrap.servers",
    "buffer.memory": "use queue.buffering.max.kbytes",
    "config.providers": "write ${VARIABLE}, which is read from the environment",
    "default.api.timeout.ms": "not needed: a worker waits for its broker indefinitely",
    "exclude.internal.topics": "not needed: patterns never match internal topics",
    "fetch.max.wait.ms": "use fetch.wait.max.ms",
    "interceptor.classes": "use @app.middleware",
    "key.deserializer": _DECODING,
    "key.serializer": _ENCODING,
    "max.block.ms": "not needed: a full producer queue delays copies, and nothing fails",
    "max.poll.records": "not needed: the worker takes in what its window (window: {cells,"
    " cell_records}) and memory allow",
    "max.request.size": "use message.max.bytes",
    "metric.reporters": _METRICS,
    "metrics.num.samples": _METRICS,
    "metrics.recording.level": _METRICS,
    "metrics.sample.window.ms": _METRICS,
    "partitioner.class": "not needed: copies go where Java's producers put their key",
    "partitioner.ignore.keys": "not needed: copies go where Java's producers put their key",
    "receive.buffer.bytes": "use socket.receive.buffer.bytes",
    "sasl.client.callback.handler.class": _LOGIN,
    "sasl.jaas.config": _LOGIN,
    "sasl.login.callback.handler.class": _LOGIN,
    "sasl.login.class": _LOGIN,
    "security.providers": _TLS,
    "send.buffer.bytes": "use socket.send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": "use socket.connection.setup.timeout.ms",
    "ssl.enabled.protocols": _TLS,
    "ssl.engine.factory.class": _TLS,
    "ssl.keymanager.algorithm": _TLS,
    "ssl.keystore.certificate.chain": "use ssl.certificate.pem",
    "ssl.keystore.key": "use ssl.key.pem",
    "ssl.keystore.type": "remove it: ssl.keystore.location is a PKCS#12 file;"
    " for PEM use ssl.certificate.location and ssl.key.location",
    "ssl.protocol": _TLS,
    "ssl.provider": _TLS,
    "ssl.secure.random.implementation": _TLS,
    "ssl.trustmanager.algorithm": _TLS,
    "ssl.truststore.certificates": "use ssl.ca.pem",
    "ssl.truststore.location": _TRUST,
    "ssl.truststore.password": _TRUST,
    "ssl.truststore.type": _TRUST,
    "value.deserializer": _DECODING,
    "value.serializer": _ENCODING,
}
"""The advice for each of them."""

_ASSIGNORS: Final = {
    "rangeassignor": "range",
    "roundrobinassignor": "roundrobin",
    "stickyassignor": "cooperative-sticky",
    "cooperativestickyassignor": "cooperative-sticky",
}


def java_advice(key: str, value: object) -> str | None:
    """Return the advice for a setting of the Java client, or None if librdkafka also has it."""
    if key in JAVA_ONLY:
        return f"{key} is a property of the Java client: {JAVA_ONLY[key]}"
    if key == "partition.assignment.strategy" and "Assignor" in str(value):
        classes = [each.strip().rpartition(".")[2] for each in str(value).split(",")]
        names = ",".join(dict.fromkeys(_ASSIGNORS.get(each.lower(), "range") for each in classes))
        return f"{key} names classes of the Java client: write {names}"
    return None
