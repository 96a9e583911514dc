"""Kafka as a source of Spark: always read_committed, from the checkpoint's offsets.

``kafka`` are the client's properties as in the configuration (``bootstrap.servers``,
``security.protocol`` ...). librdkafka's names for certificates and passwords become the Java
client's; properties without a counterpart are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from window_consumer.config.sections.kafka_properties import as_text
from window_consumer.kafka.login.tokens import LoginTokens
from window_consumer.kafka.oauth import FUNCTION
from window_consumer.model.errors import UsageError
from window_consumer.spark.logins import java_login, quoted, require_class

_AS_IN_JAVA: Final = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.rack",
        "request.timeout.ms",
        "security.protocol",
        "sasl.mechanism",
        "ssl.endpoint.identification.algorithm",
    }
)
_MECHANISMS: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


_WAIT_MS: Final = "100"
"""The longest wait of a fetch.

Spark queries a topic's ends after each fetch, and the broker first answers the fetch that the
client has sent ahead. With the default, this took 500 ms per task at the end of a topic.
"""


def java_properties(kafka: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties for the Java client; raise UsageError for those that it lacks.

    ``ssl.ca.location``, ``ssl.certificate.location`` and ``ssl.key.location`` (PEM files) are read
    and passed as texts; user name and password become ``sasl.jaas.config``, and so does a login.
    """
    tokens = kafka.get(FUNCTION)
    given = {key: as_text(value) for key, value in kafka.items() if key != FUNCTION}
    found = {"isolation.level": "read_committed", "fetch.max.wait.ms": _WAIT_MS}
    if isinstance(tokens, LoginTokens):
        del given["sasl.mechanism"]
        found |= java_login(tokens.login)
    mechanism = given.pop("sasl.mechanisms", None) or given.pop("sasl.mechanism", None)
    user, password = given.pop("sasl.username", None), given.pop("sasl.password", None)
    if mechanism is not None:
        module = _MECHANISMS.get(mechanism)
        if module is None:
            raise UsageError(
                f"sasl.mechanism {mechanism} is not supported by the pipeline; supported are"
                f" {', '.join(_MECHANISMS)}"
            )
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = (
            f'{module} required username="{quoted(user)}" password="{quoted(password)}";'
        )
    for name, key, kind in _FILES:
        if (path := given.pop(name, None)) is not None:
            found[key] = _text_of(name, path)
            found[kind] = "PEM"
    if (secret := given.pop("ssl.key.password", None)) is not None:
        found["ssl.key.password"] = secret
    for name, value in given.items():
        if name not in _AS_IN_JAVA:
            raise UsageError(
                f"kafka: the librdkafka property {name} has no counterpart in Spark's Kafka client;"
                f" supported are {', '.join(sorted(_AS_IN_JAVA))}, sasl.username, sasl.password and"
                " ssl.*.location"
            )
        found[name] = value
    return found


_FILES: Final = (
    ("ssl.ca.location", "ssl.truststore.certificates", "ssl.truststore.type"),
    ("ssl.certificate.location", "ssl.keystore.certificate.chain", "ssl.keystore.type"),
    ("ssl.key.location", "ssl.keystore.key", "ssl.keystore.type"),
)


def _text_of(name: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - a name from the configuration
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"kafka: {name}: cannot read {path}: {error}") from error


def options(kafka: Mapping[str, Any], topics: str, *, pattern: bool = False) -> dict[str, str]:
    """Return options of Spark's Kafka source for topics (comma-separated) or a Java pattern."""
    found = {f"kafka.{key}": value for key, value in java_properties(kafka).items()}
    found["subscribePattern" if pattern else "subscribe"] = topics
    found["includeHeaders"] = "true"
    return found


def stream(
    session: SparkSession, given: Mapping[str, str], *, most_records: int, fail_on_data_loss: bool
) -> DataFrame:
    """Return the stream of a topic from its beginning, ``most_records`` Kafka records per batch.

    Raises UsageError if a login needs a class that Spark does not have.
    """
    require_class(session, given)
    return (
        session.readStream.format("kafka")
        .options(**given)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(most_records))
        .option("failOnDataLoss", str(fail_on_data_loss).lower())
        .load()
    )


def bounded(session: SparkSession, given: Mapping[str, str]) -> DataFrame:
    """Return all current records of a topic. Raises UsageError, see ``stream``."""
    require_class(session, given)
    return (
        session.read.format("kafka")
        .options(**given)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
